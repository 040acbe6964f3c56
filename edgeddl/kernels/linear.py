"""Fully connected layers, computed by the convolution kernels.

In memory, W (M, L), row by row, is the weights of a 1 x 1 convolution from M to L channels. The
input gradient of that convolution multiplies by the transpose of W: this is the forward pass of the
layer. Its input gradient is then the convolution itself.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from edgeddl.kernels.binding import structure
from edgeddl.kernels.call_queue import call_in_order
from edgeddl.kernels.checks import check_array, check_channels, check_writable
from edgeddl.kernels.convolution import (
    CONV,
    native_forward,
    native_input_gradient,
    native_weight_gradient,
)
from edgeddl.kernels.layout import Array, contiguous
from edgeddl.kernels.reference import linear as reference
from edgeddl.kernels.selection import selected


def linear_forward(x: Array, W: Array, b: Array | None) -> Array:
    """y (N, M) = x (N, L) times W (M, L) transposed, plus b (M,) if given."""
    check_array("x", x, (None, None))
    check_array("W", W, (None, x.shape[1]))
    if b is not None:
        check_channels(len(W), b=b)
    if selected.library is None:
        return reference.linear_forward(x, W, b)
    y = np.empty((len(x), len(W)), np.float32)
    native_input_gradient(_pixelwise(len(x), *W.shape), contiguous(x), contiguous(W), None, y)
    if b is not None:
        call_in_order(np.add, y, b, y)
    return y


def linear_weight_gradient(x: Array, gy: Array, out: Array | None = None) -> Array:
    """gW (M, L), written to `out` if given."""
    check_array("x", x, (None, None))
    check_array("gy", gy, (len(x), None))
    shape = gy.shape[1], x.shape[1]
    if out is not None:
        check_array("out", out, shape)
        check_writable("out", out, x=x, gy=gy)
    if selected.library is None:
        return reference.linear_weight_gradient(x, gy, out)
    if out is None:
        out = np.empty(shape, np.float32)
    gW = out if out.flags.c_contiguous else np.empty(shape, np.float32)
    images, gradients = contiguous(gy), contiguous(x)
    native_weight_gradient(_pixelwise(len(x), *shape), images, None, None, gradients, gW)
    if gW is not out:
        call_in_order(np.copyto, out, gW)
    return out


def linear_input_gradient(gy: Array, W: Array) -> Array:
    """gx (N, L)."""
    check_array("W", W, (None, None))
    check_array("gy", gy, (None, len(W)))
    if selected.library is None:
        return reference.linear_input_gradient(gy, W)
    gx = np.empty((len(gy), W.shape[1]), np.float32)
    conv = _pixelwise(len(gy), *W.shape)
    native_forward(conv, contiguous(gy), None, None, contiguous(W), None, gx)
    return gx


@lru_cache(maxsize=1024)
def _pixelwise(n: int, c: int, k: int) -> Array:
    """A 1 x 1 convolution of n images of one pixel, as a `conv`."""
    return structure(CONV, n, 1, 1, c, k, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1)
