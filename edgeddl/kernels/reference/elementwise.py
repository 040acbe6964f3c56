"""ReLU, addition, and sums over all axes but the channels."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array, as_rows, from_rows
from edgeddl.kernels.reference.blocks import column_sums, row_blocks


def relu_forward(x: Array) -> Array:
    """max(x, 0)."""
    rows = as_rows(x)
    return from_rows(np.maximum(rows, np.float32(0)), x.shape)


def relu_backward(y: Array, gy: Array) -> Array:
    """gy where y > 0, else 0."""
    rows, gy_rows = as_rows(y), as_rows(gy)
    gx = np.empty_like(rows)
    for block in row_blocks(rows):
        gx[block] = np.where(rows[block] > 0, gy_rows[block], np.float32(0))
    return from_rows(gx, y.shape)


def add(x: Array, y: Array) -> Array:
    """x + y."""
    return from_rows(as_rows(x) + as_rows(y), x.shape)


def channel_sums(gy: Array, out: Array | None = None) -> Array:
    """The sum of each channel (C,), added up over blocks in float64: the gradient of a bias."""
    rows = as_rows(gy)
    total = np.zeros(rows.shape[1])
    for block in row_blocks(rows):
        total += column_sums(rows[block])
    return stored(total.astype(np.float32), out)


def stored(numbers: Array, out: Array | None) -> Array:
    """The numbers, copied to `out` if given."""
    if out is None:
        return numbers
    np.copyto(out, numbers)
    return out
