"""Batch normalisation over the rows (pixels of all images) of each channel, in C."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array, as_rows, from_rows
from edgeddl.kernels.native.library import load

_statistics = load().function("batch_normalization_statistics", "llppp")
_inference = load().function("batch_normalization_inference", "llpppppdipp")
_parameter_gradients = load().function("batch_normalization_parameter_gradients", "llppppppdipp")
_residual_gradients = load().function("batch_normalization_residual_gradients", "llpppppdppp")
_input_gradient = load().function("batch_normalization_input_gradient", "llppppppdppip")


def batch_normalization_statistics(x: Array) -> tuple[Array, Array]:
    """The mean and biased variance of each channel over this batch."""
    rows = as_rows(x)
    mean, var = _two_vectors(rows)
    _statistics(*rows.shape, rows, mean, var)
    return mean, var


def batch_normalization_inference(
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    var: Array,
    eps: float,
    relu: bool = False,
    residual: Array | None = None,
) -> Array:
    """y for a given mean and variance; its ReLU, or that of y + residual."""
    rows = as_rows(x)
    added = None if residual is None else as_rows(residual)
    y = np.empty_like(rows)
    vectors = map(np.ascontiguousarray, (gamma, beta, mean, var))
    _inference(*rows.shape, rows, *vectors, eps, relu, added, y)
    return from_rows(y, x.shape)


def batch_normalization_parameter_gradients(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    var: Array,
    eps: float,
    relu: bool = False,
) -> tuple[Array, Array]:
    """ggamma, gbeta: sums of g * x_hat and of g, the gradient of what was normalised."""
    rows = as_rows(x)
    ggamma, gbeta = _two_vectors(rows)
    vectors = map(np.ascontiguousarray, (gamma, beta, mean, var))
    _parameter_gradients(*rows.shape, rows, as_rows(gy), *vectors, eps, relu, ggamma, gbeta)
    return ggamma, gbeta


def batch_normalization_residual_gradients(
    x: Array, y: Array, gy: Array, mean: Array, var: Array, eps: float
) -> tuple[Array, Array, Array]:
    """g, ggamma, gbeta, for y = relu(normalised x + residual); g is the residual's gradient."""
    rows = as_rows(x)
    g, ggamma, gbeta = np.empty_like(rows), *_two_vectors(rows)
    mean, var = map(np.ascontiguousarray, (mean, var))
    _residual_gradients(
        *rows.shape, rows, as_rows(y), as_rows(gy), mean, var, eps, g, ggamma, gbeta
    )
    return from_rows(g, x.shape), ggamma, gbeta


def batch_normalization_input_gradient(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    var: Array,
    eps: float,
    ggamma: Array,
    gbeta: Array,
    relu: bool = False,
) -> Array:
    """gx = gamma / std * (g - gbeta / m - x_hat * ggamma / m), for m rows."""
    rows = as_rows(x)
    gx = np.empty_like(rows)
    vectors = map(np.ascontiguousarray, (gamma, beta, mean, var))
    ggamma, gbeta = map(np.ascontiguousarray, (ggamma, gbeta))
    _input_gradient(*rows.shape, rows, as_rows(gy), *vectors, eps, ggamma, gbeta, relu, gx)
    return from_rows(gx, x.shape)


def _two_vectors(rows: Array) -> tuple[Array, Array]:
    channels = rows.shape[1]
    return np.empty(channels, np.float32), np.empty(channels, np.float32)
