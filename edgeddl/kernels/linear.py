"""Entry points of fully connected layers."""

from __future__ import annotations

from edgeddl.kernels.checks import check_array, check_channels, check_writable
from edgeddl.kernels.layout import Array
from edgeddl.kernels.selection import selected


def linear_forward(x: Array, W: Array, b: Array | None) -> Array:
    """y (N, M) = x (N, L) times W (M, L) transposed, plus b (M,) if given."""
    check_array("x", x, (None, None))
    check_array("W", W, (None, x.shape[1]))
    if b is not None:
        check_channels(len(W), b=b)
    return selected.implementation.linear_forward(x, W, b)


def linear_weight_gradient(x: Array, gy: Array, out: Array | None = None) -> Array:
    """gW (M, L), written to `out` if given."""
    check_array("x", x, (None, None))
    check_array("gy", gy, (len(x), None))
    if out is not None:
        check_array("out", out, (gy.shape[1], x.shape[1]))
        check_writable("out", out, x=x, gy=gy)
    return selected.implementation.linear_weight_gradient(x, gy, out)


def linear_input_gradient(gy: Array, W: Array) -> Array:
    """gx (N, L)."""
    check_array("W", W, (None, None))
    check_array("gy", gy, (None, len(W)))
    return selected.implementation.linear_input_gradient(gy, W)
