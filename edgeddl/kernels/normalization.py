"""Batch normalisation over the rows (the pixels of all images) of each channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl.errors import KernelError
from edgeddl.kernels.batch_statistics import (
    BatchStatistics,
    FoldedNormalization,
    NormalizationGradients,
    RunningStatistics,
)
from edgeddl.kernels.binding import QueuedFunction
from edgeddl.kernels.call_queue import call_in_order
from edgeddl.kernels.checks import (
    check_array,
    check_channels,
    check_rows,
    check_vector,
    check_writable,
)
from edgeddl.kernels.layout import Array, as_channels_last, contiguous, from_channels_last
from edgeddl.kernels.reference import normalization as reference
from edgeddl.kernels.selection import selected

# mean and var are read if they are given; else C writes them to new, contiguous vectors
_forward = QueuedFunction("batch_normalization_forward", "llpvvvvdidppipw")
_fold = QueuedFunction("batch_normalization_fold", "llpvvvvdidppww")
_backward = QueuedFunction("batch_normalization_backward", "llpppvvvvdiiowww")


def batch_normalization_forward(
    x: Array,
    gamma: Array,
    beta: Array,
    statistics: BatchStatistics | None,
    eps: float,
    relu: bool = False,
    residual: Array | None = None,
    in_place: bool = False,
    running: RunningStatistics | None = None,
) -> tuple[Array, BatchStatistics]:
    """y and the statistics it is normalised with: the given ones, else those of x.

    x is (N, C, H, W) or (N, C). Running statistics, if given, are updated in place with those of x.

    With `relu`, y is the ReLU of the normalised x; with a residual, the ReLU of their sum. With
    `in_place`, y may overwrite the residual.
    """
    inputs = {"x": x, "gamma": gamma, "beta": beta}
    check_rows("x", x)
    if residual is not None:
        check_array("residual", residual, x.shape)
        inputs["residual"] = residual
        if in_place:
            check_writable("residual", residual, x=x)
    _check_statistics(statistics, running, inputs)
    if selected.library is None:
        return reference.batch_normalization_forward(
            x, gamma, beta, statistics, eps, relu, residual, running
        )
    added = None if residual is None else as_channels_last(residual)
    images = as_channels_last(x)
    y = np.empty(images.shape, np.float32) if added is None or not in_place else added
    found = _normalize(_forward, images, gamma, beta, statistics, eps, running, relu, added, y)
    return from_channels_last(y), found


def batch_normalization_fold(
    x: Array,
    gamma: Array,
    beta: Array,
    statistics: BatchStatistics | None,
    eps: float,
    running: RunningStatistics | None = None,
) -> tuple[FoldedNormalization, BatchStatistics]:
    """As batch_normalization_forward, for a convolution that normalises x as it reads it."""
    check_rows("x", x)
    _check_statistics(statistics, running, {"x": x, "gamma": gamma, "beta": beta})
    if selected.library is None:
        return reference.batch_normalization_fold(x, gamma, beta, statistics, eps, running)
    c = len(gamma)
    folded = FoldedNormalization(np.empty(c, np.float32), np.empty(c, np.float32))
    images = as_channels_last(x)
    return folded, _normalize(_fold, images, gamma, beta, statistics, eps, running, *folded)


def _check_statistics(
    statistics: BatchStatistics | None,
    running: RunningStatistics | None,
    inputs: dict[str, Array],
) -> None:
    """Checks gamma and beta, too; the other inputs are checked already."""
    x, c = inputs["x"], inputs["x"].shape[1]
    check_channels(c, gamma=inputs["gamma"], beta=inputs["beta"])
    if statistics is not None:
        check_channels(c, mean=statistics.mean, var=statistics.var)
        if running is not None:
            raise KernelError("running statistics cannot be updated with given statistics")
    elif x.size == 0:
        raise KernelError("batch normalisation needs at least one image, the batch is empty")
    if running is not None:
        check_channels(c, running_mean=running.mean, running_var=running.var)
        check_writable("running_mean", running.mean, running_var=running.var, **inputs)
        check_writable("running_var", running.var, **inputs)


def _normalize(
    function: QueuedFunction,
    images: Array,
    gamma: Array,
    beta: Array,
    statistics: BatchStatistics | None,
    eps: float,
    running: RunningStatistics | None,
    *results: Any,
) -> BatchStatistics:
    """Call the C function; without given statistics it computes them and updates the running ones.

    Running statistics that are not contiguous are updated in a copy.
    """
    c, fixed = len(gamma), statistics is not None
    mean, var = statistics or (np.empty(c, np.float32), np.empty(c, np.float32))
    running_mean = running_var = None
    if running is not None:
        running_mean, running_var = contiguous(running.mean), contiguous(running.var)
    function(
        *(images.size // c, c, images, gamma, beta, mean, var, eps, fixed),
        *(0.0 if running is None else running.decay, running_mean, running_var, *results),
    )
    if running is not None:
        if running_mean is not running.mean:
            call_in_order(np.copyto, running.mean, running_mean)
        if running_var is not running.var:
            call_in_order(np.copyto, running.var, running_var)
    return BatchStatistics(mean, var)


def batch_normalization_backward(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    statistics: BatchStatistics,
    eps: float,
    relu: bool = False,
    *,
    y: Array | None = None,
    fixed: bool = False,
    in_place: bool = False,
    y_in_place: bool = False,
    out_gamma: Array | None = None,
    out_beta: Array | None = None,
) -> NormalizationGradients:
    """The gradients of x, gamma and beta, and of the residual, if there was one.

    gx = gamma / std * (g - gbeta / m - x_hat * ggamma / m), for m rows.

    With `relu`, the zeros of the ReLU are found from x, so y need not be kept. After a residual, y
    is required. `fixed`: the statistics were given, not computed from x. With `in_place`, the
    gradient of x may overwrite gy; with `y_in_place`, that of the residual may overwrite y.
    Gradients of gamma and beta are written to `out_gamma` and `out_beta`, if given.
    """
    check_rows("x", x)
    check_array("gy", gy, x.shape)
    c = x.shape[1]
    check_channels(c, gamma=gamma, beta=beta, mean=statistics.mean, var=statistics.var)
    if y is not None:
        check_array("y", y, x.shape)
    if in_place:
        check_writable("gy", gy, x=x)
    if y is not None and y_in_place:
        check_writable("y", y, x=x, gy=gy)
    check_vector("out_gamma", out_gamma, c, x=x, gy=gy)
    check_vector("out_beta", out_beta, c, x=x, gy=gy)
    if selected.library is None:
        return reference.batch_normalization_backward(
            x, gy, gamma, beta, statistics, eps, relu, y, fixed, out_gamma, out_beta
        )
    images, gradient = as_channels_last(x), as_channels_last(gy)
    gx = gradient if in_place else np.empty(images.shape, np.float32)
    output = None if y is None else as_channels_last(y)
    g = output if y is None or y_in_place else np.empty(images.shape, np.float32)
    ggamma = np.empty(c, np.float32) if out_gamma is None else out_gamma
    gbeta = np.empty(c, np.float32) if out_beta is None else out_beta
    _backward(
        *(x.size // c, c, images, output, gradient, gamma, beta, *statistics, eps, relu, fixed),
        *(g, gx, ggamma, gbeta),
    )
    residual = None if g is None else from_channels_last(g)
    return NormalizationGradients(from_channels_last(gx), ggamma, gbeta, residual)
