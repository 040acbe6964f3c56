"""Batch normalisation over the rows (pixels of all images) of each channel, in C."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array, as_rows, from_rows
from edgeddl.kernels.moments import Moments, NormalizationGradients, Running
from edgeddl.kernels.native.library import load
from edgeddl.kernels.prologue import Prologue

_statistics = load().function("batch_normalization_statistics", "llpppdpp")
_scale = load().function("batch_normalization_scale", "lppppdpp")
_inference = load().function("batch_normalization_inference", "llpppppdipp")
_backward = load().function("batch_normalization_backward", "llpppppppdiipppp")


def batch_normalization_statistics(x: Array, running: Running | None = None) -> Moments:
    """The mean and biased variance of each channel over this batch."""
    rows = as_rows(x)
    moments = Moments(*_two_vectors(rows))
    mean, var, decay = running or (None, None, 0.0)
    averages = [None if array is None else np.ascontiguousarray(array) for array in (mean, var)]
    _statistics(*rows.shape, rows, *moments, decay, *averages)
    for array, average in zip((mean, var), averages, strict=True):
        if array is not None and average is not array:
            array[...] = average
    return moments


def batch_normalization_scale(
    gamma: Array, beta: Array, mean: Array, var: Array, eps: float
) -> Prologue:
    """The batch normalisation as x * scale + shift."""
    scale, shift = np.empty_like(gamma), np.empty_like(gamma)
    vectors = map(np.ascontiguousarray, (gamma, beta, mean, var))
    _scale(len(gamma), *vectors, eps, scale, shift)
    return Prologue(scale, shift)


def batch_normalization_inference(
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    var: Array,
    eps: float,
    relu: bool = False,
    residual: Array | None = None,
    in_place: bool = False,
) -> Array:
    """y for a given mean and variance; its ReLU, or that of y + residual."""
    rows = as_rows(x)
    added = None if residual is None else as_rows(residual)
    y = np.empty_like(rows) if added is None or not in_place else added
    vectors = map(np.ascontiguousarray, (gamma, beta, mean, var))
    _inference(*rows.shape, rows, *vectors, eps, relu, added, y)
    return from_rows(y, x.shape)


def batch_normalization_backward(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    var: Array,
    eps: float,
    relu: bool,
    y: Array | None,
    fixed: bool,
    in_place: bool,
    y_in_place: bool,
    out_gamma: Array | None,
    out_beta: Array | None,
) -> NormalizationGradients:
    """gx = gamma / std * (g - gbeta / m - x_hat * ggamma / m), for m rows; ggamma, gbeta, g."""
    rows, gy_rows = as_rows(x), as_rows(gy)
    gx = gy_rows if in_place else np.empty_like(rows)
    y_rows = None if y is None else as_rows(y)
    g = y_rows if y is None or y_in_place else np.empty_like(rows)
    ggamma = np.empty(rows.shape[1], np.float32) if out_gamma is None else out_gamma
    gbeta = np.empty(rows.shape[1], np.float32) if out_beta is None else out_beta
    vectors = map(np.ascontiguousarray, (gamma, beta, mean, var))
    _backward(*rows.shape, rows, y_rows, gy_rows, *vectors, eps, relu, fixed, g, gx, ggamma, gbeta)
    residual = None if g is None else from_rows(g, x.shape)
    return NormalizationGradients(from_rows(gx, x.shape), ggamma, gbeta, residual)


def _two_vectors(rows: Array) -> tuple[Array, Array]:
    channels = rows.shape[1]
    return np.empty(channels, np.float32), np.empty(channels, np.float32)
