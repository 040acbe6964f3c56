"""ReLU, addition, and sums over all axes but the channels."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.binding import QueuedFunction
from edgeddl.kernels.checks import check_array, check_rows, check_vector
from edgeddl.kernels.layout import Array, as_channels_last, from_channels_last
from edgeddl.kernels.reference import elementwise as reference
from edgeddl.kernels.selection import selected

_relu_forward = QueuedFunction("relu_forward", "pwl")
_relu_backward = QueuedFunction("relu_backward", "ppwl")
_add = QueuedFunction("add", "ppwl")
_channel_sums = QueuedFunction("channel_sums", "llpw")


def relu_forward(x: Array) -> Array:
    """max(x, 0); x is (N, C, H, W) or (N, C)."""
    check_rows("x", x)
    if selected.library is None:
        return reference.relu_forward(x)
    images = as_channels_last(x)
    y = np.empty_like(images)
    _relu_forward(images, y, x.size)
    return from_channels_last(y)


def relu_backward(y: Array, gy: Array) -> Array:
    """gy where y > 0, else 0; y is the result of relu_forward."""
    check_rows("y", y)
    check_array("gy", gy, y.shape)
    if selected.library is None:
        return reference.relu_backward(y, gy)
    images = as_channels_last(y)
    gx = np.empty_like(images)
    _relu_backward(images, as_channels_last(gy), gx, y.size)
    return from_channels_last(gx)


def add(x: Array, y: Array) -> Array:
    """x + y; both are (N, C, H, W) or (N, C)."""
    check_rows("x", x)
    check_array("y", y, x.shape)
    if selected.library is None:
        return reference.add(x, y)
    images = as_channels_last(x)
    total = np.empty_like(images)
    _add(images, as_channels_last(y), total, x.size)
    return from_channels_last(total)


def channel_sums(gy: Array, out: Array | None = None) -> Array:
    """The sum of each channel (C,), written to `out` if given: the gradient of a bias."""
    check_rows("gy", gy)
    c = gy.shape[1]
    check_vector("out", out, c, gy=gy)
    if selected.library is None:
        return reference.channel_sums(gy, out)
    sums = np.empty(c, np.float32) if out is None else out
    _channel_sums(gy.size // c, c, as_channels_last(gy), sums)
    return sums
