"""ReLU, addition, and sums over all but the channels, in C."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array, as_channels_last, from_channels_last
from edgeddl.kernels.native.library import load

_relu_forward = load().deferrable_function("relu_forward", "pwl")
_relu_backward = load().deferrable_function("relu_backward", "ppwl")
_add = load().deferrable_function("add", "ppwl")
_channel_sums = load().deferrable_function("channel_sums", "llpw")


def relu_forward(x: Array) -> Array:
    """max(x, 0)."""
    images = as_channels_last(x)
    y = np.empty_like(images)
    _relu_forward(images, y, x.size)
    return from_channels_last(y)


def relu_backward(y: Array, gy: Array) -> Array:
    """gy where y > 0, else 0."""
    images = as_channels_last(y)
    gx = np.empty_like(images)
    _relu_backward(images, as_channels_last(gy), gx, y.size)
    return from_channels_last(gx)


def add(x: Array, y: Array) -> Array:
    """x + y."""
    images = as_channels_last(x)
    total = np.empty_like(images)
    _add(images, as_channels_last(y), total, x.size)
    return from_channels_last(total)


def channel_sums(gy: Array, out: Array | None = None) -> Array:
    """The sum over all but the channels (C,): the gradient of a bias."""
    c = gy.shape[1]
    sums = np.empty(c, np.float32) if out is None else out
    _channel_sums(gy.size // c, c, as_channels_last(gy), sums)
    return sums
