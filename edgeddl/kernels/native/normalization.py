"""Batch normalisation over the rows (pixels of all images) of each channel, in C."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl.kernels.deferral import after
from edgeddl.kernels.layout import Array, as_channels_last, contiguous, from_channels_last
from edgeddl.kernels.moments import Moments, NormalizationGradients, Running
from edgeddl.kernels.native.library import DeferrableFunction, load
from edgeddl.kernels.prologue import Prologue

# mean and var are read if they are given; else C writes them, to new and thus contiguous vectors
_forward = load().deferrable_function("batch_normalization_forward", "llpvvvvdidppipw")
_prologue = load().deferrable_function("batch_normalization_fold", "llpvvvvdidppww")
_backward = load().deferrable_function("batch_normalization_backward", "llpppvvvvdiiowww")


def batch_normalization_forward(
    x: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    relu: bool,
    residual: Array | None,
    in_place: bool,
    running: Running | None,
) -> tuple[Array, Moments]:
    """y, its ReLU, or that of y + residual; and the moments."""
    added = None if residual is None else as_channels_last(residual)
    images = as_channels_last(x)
    y = np.empty(images.shape, np.float32) if added is None or not in_place else added
    moments = _normalize(_forward, images, gamma, beta, moments, eps, running, relu, added, y)
    return from_channels_last(y), moments


def batch_normalization_prologue(
    x: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    running: Running | None,
) -> tuple[Prologue, Moments]:
    """The batch normalisation as x * scale + shift, and the moments."""
    c = len(gamma)
    form = Prologue(np.empty(c, np.float32), np.empty(c, np.float32))
    images = as_channels_last(x)
    return form, _normalize(_prologue, images, gamma, beta, moments, eps, running, *form)


def _normalize(
    function: DeferrableFunction,
    images: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    running: Running | None,
    *results: Any,
) -> Moments:
    """Have C find the moments, if they are not given, update the running ones and go on."""
    c, fixed = len(gamma), moments is not None
    mean, var = moments or (np.empty(c, np.float32), np.empty(c, np.float32))
    average = variance = None
    if running is not None:
        average, variance = contiguous(running.mean), contiguous(running.var)
    function(
        *(images.size // c, c, images, gamma, beta, mean, var, eps, fixed),
        *(0.0 if running is None else running.decay, average, variance, *results),
    )
    if running is not None:
        if average is not running.mean:
            after(np.copyto, running.mean, average)
        if variance is not running.var:
            after(np.copyto, running.var, variance)
    return Moments(mean, var)


def batch_normalization_backward(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    moments: Moments,
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
        *(x.size // c, c, images, result, gradient, gamma, beta, *moments, eps, relu, fixed),
        *(g, gx, ggamma, gbeta),
    )
    residual = None if g is None else from_channels_last(g)
    return NormalizationGradients(from_channels_last(gx), ggamma, gbeta, residual)
