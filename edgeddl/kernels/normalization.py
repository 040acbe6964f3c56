"""Entry points of batch normalisation."""

from __future__ import annotations

from edgeddl.errors import KernelError
from edgeddl.kernels.checks import (
    check_array,
    check_channels,
    check_rows,
    check_vector,
    check_writable,
)
from edgeddl.kernels.layout import Array
from edgeddl.kernels.moments import Moments, NormalizationGradients, Running
from edgeddl.kernels.prologue import Prologue
from edgeddl.kernels.selection import selected


def batch_normalization_forward(
    x: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    relu: bool = False,
    residual: Array | None = None,
    in_place: bool = False,
    running: Running | None = None,
) -> tuple[Array, Moments]:
    """y, and the moments it was found with: the given ones, else those of x.

    x is (N, C, H, W) or (N, C). Running statistics, if given, are updated in place by those of x.

    With `relu`, y is the ReLU of what is normalised; with a residual, of its sum with that. With
    `in_place`, y may be written over the residual.
    """
    inputs = {"x": x, "gamma": gamma, "beta": beta}
    check_rows("x", x)
    if residual is not None:
        check_array("residual", residual, x.shape)
        inputs["residual"] = residual
        if in_place:
            check_writable("residual", residual, x=x)
    _check_statistics(moments, running, inputs)
    return selected.implementation.batch_normalization_forward(
        x, gamma, beta, moments, eps, relu, residual, in_place, running
    )


def batch_normalization_prologue(
    x: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    running: Running | None = None,
) -> tuple[Prologue, Moments]:
    """Likewise, for a convolution to apply it, and a ReLU, as it reads x."""
    check_rows("x", x)
    _check_statistics(moments, running, {"x": x, "gamma": gamma, "beta": beta})
    return selected.implementation.batch_normalization_prologue(
        x, gamma, beta, moments, eps, running
    )


def _check_statistics(
    moments: Moments | None, running: Running | None, inputs: dict[str, Array]
) -> None:
    """And gamma and beta; what else there is of inputs was checked before."""
    x, c = inputs["x"], inputs["x"].shape[1]
    check_channels(c, gamma=inputs["gamma"], beta=inputs["beta"])
    if moments is not None:
        check_channels(c, mean=moments.mean, var=moments.var)
        if running is not None:
            raise KernelError("running statistics are not updated by moments that are given")
    elif x.size == 0:
        raise KernelError("batch normalisation needs at least one image, the batch is empty")
    if running is not None:
        check_channels(c, running_mean=running.mean, running_var=running.var)
        check_writable("running_mean", running.mean, running_var=running.var, **inputs)
        check_writable("running_var", running.var, **inputs)


def batch_normalization_backward(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    moments: Moments,
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

    With `relu`, where it was zero is found from x: y need not be kept. After a residual it must be
    given. `fixed` says that the moments were not found from x. With `in_place`, the gradient
    of x may be written over gy, with `y_in_place` that of the residual over y. Gradients of gamma
    and beta are written to `out_gamma` and `out_beta`, if given.
    """
    check_rows("x", x)
    check_array("gy", gy, x.shape)
    check_channels(x.shape[1], gamma=gamma, beta=beta, mean=moments.mean, var=moments.var)
    if y is not None:
        check_array("y", y, x.shape)
    if in_place:
        check_writable("gy", gy, x=x)
    if y is not None and y_in_place:
        check_writable("y", y, x=x, gy=gy)
    check_vector("out_gamma", out_gamma, x.shape[1], x=x, gy=gy)
    check_vector("out_beta", out_beta, x.shape[1], x=x, gy=gy)
    return selected.implementation.batch_normalization_backward(
        *(x, gy, gamma, beta, moments, eps, relu, y, fixed, in_place, y_in_place),
        *(out_gamma, out_beta),
    )
