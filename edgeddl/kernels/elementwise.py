"""Entry points of what is done to each number, and of sums over them."""

from __future__ import annotations

from edgeddl.kernels.checks import check_array, check_rows, check_vector
from edgeddl.kernels.layout import Array
from edgeddl.kernels.selection import selected


def relu_forward(x: Array) -> Array:
    """max(x, 0); x is (N, C, H, W) or (N, C)."""
    check_rows("x", x)
    return selected.implementation.relu_forward(x)


def relu_backward(y: Array, gy: Array) -> Array:
    """gx, from what came out of relu_forward."""
    check_rows("y", y)
    check_array("gy", gy, y.shape)
    return selected.implementation.relu_backward(y, gy)


def add(x: Array, y: Array) -> Array:
    """x + y; both are (N, C, H, W) or (N, C)."""
    check_rows("x", x)
    check_array("y", y, x.shape)
    return selected.implementation.add(x, y)


def channel_sums(gy: Array, out: Array | None = None) -> Array:
    """The sum over all but the channels (C,), written to `out` if given: the gradient of a bias."""
    check_rows("gy", gy)
    check_vector("out", out, gy.shape[1], gy=gy)
    return selected.implementation.channel_sums(gy, out)
