"""ReLU, addition, and sums over all but the channels, in C."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array, as_rows, from_rows
from edgeddl.kernels.native.library import load

_relu_forward = load().function("relu_forward", "ppl")
_relu_backward = load().function("relu_backward", "pppl")
_add = load().function("add", "pppl")
_channel_sums = load().function("channel_sums", "llpp")


def relu_forward(x: Array) -> Array:
    """max(x, 0)."""
    rows = as_rows(x)
    y = np.empty_like(rows)
    _relu_forward(rows, y, rows.size)
    return from_rows(y, x.shape)


def relu_backward(y: Array, gy: Array) -> Array:
    """gy where y > 0, else 0."""
    rows = as_rows(y)
    gx = np.empty_like(rows)
    _relu_backward(rows, as_rows(gy), gx, rows.size)
    return from_rows(gx, y.shape)


def add(x: Array, y: Array) -> Array:
    """x + y."""
    rows = as_rows(x)
    total = np.empty_like(rows)
    _add(rows, as_rows(y), total, rows.size)
    return from_rows(total, x.shape)


def channel_sums(gy: Array, out: Array | None = None) -> Array:
    """The sum over all but the channels (C,): the gradient of a bias."""
    rows = as_rows(gy)
    sums = np.empty(rows.shape[1], np.float32) if out is None else out
    _channel_sums(*rows.shape, rows, sums)
    return sums
