"""Batch normalisation over the rows (pixels of all images) of each channel, in C."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.deferral import after
from edgeddl.kernels.layout import Array, as_channels_last, contiguous, from_channels_last
from edgeddl.kernels.moments import Moments, NormalizationGradients, Running
from edgeddl.kernels.native.library import load
from edgeddl.kernels.prologue import Prologue

_statistics = load().deferrable_function("batch_normalization_statistics", "llpwwdpp")
_scale = load().deferrable_function("batch_normalization_scale", "lvvvvdww")
_inference = load().deferrable_function("batch_normalization_inference", "llpvvvvdipw")
_backward = load().deferrable_function("batch_normalization_backward", "llpppvvvvdiiowww")


def batch_normalization_statistics(x: Array, running: Running | None = None) -> Moments:
    """The mean and biased variance of each channel over this batch."""
    c = x.shape[1]
    mean, var = np.empty(c, np.float32), np.empty(c, np.float32)
    images, rows = as_channels_last(x), x.size // c
    if running is None:
        _statistics(rows, c, images, mean, var, 0.0, None, None)
        return Moments(mean, var)
    average, variance = contiguous(running.mean), contiguous(running.var)
    _statistics(rows, c, images, mean, var, running.decay, average, variance)
    if average is not running.mean:
        after(np.copyto, running.mean, average)
    if variance is not running.var:
        after(np.copyto, running.var, variance)
    return Moments(mean, var)


def batch_normalization_scale(
    gamma: Array, beta: Array, mean: Array, var: Array, eps: float
) -> Prologue:
    """The batch normalisation as x * scale + shift."""
    c = len(gamma)
    scale, shift = np.empty(c, np.float32), np.empty(c, np.float32)
    _scale(c, gamma, beta, mean, var, eps, scale, shift)
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
    images, c = as_channels_last(x), x.shape[1]
    added = None if residual is None else as_channels_last(residual)
    y = np.empty(images.shape, np.float32) if added is None or not in_place else added
    _inference(x.size // c, c, images, gamma, beta, mean, var, eps, relu, added, y)
    return from_channels_last(y)


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
    images, gradient, c = as_channels_last(x), as_channels_last(gy), x.shape[1]
    gx = gradient if in_place else np.empty(images.shape, np.float32)
    result = None if y is None else as_channels_last(y)
    g = result if y is None or y_in_place else np.empty(images.shape, np.float32)
    ggamma = np.empty(c, np.float32) if out_gamma is None else out_gamma
    gbeta = np.empty(c, np.float32) if out_beta is None else out_beta
    _backward(
        *(x.size // c, c, images, result, gradient, gamma, beta, mean, var, eps, relu, fixed),
        *(g, gx, ggamma, gbeta),
    )
    residual = None if g is None else from_channels_last(g)
    return NormalizationGradients(from_channels_last(gx), ggamma, gbeta, residual)
