"""Affine transformation and its gradients by the convolution kernels.

W (M, L), row by row, is in memory what a 1 x 1 convolution from M to L channels has as weights. The
convolution's input gradient multiplies by its transpose: that is the affine transformation, whose
own input gradient is then the convolution itself.
"""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.deferral import after
from edgeddl.kernels.layout import Array, contiguous
from edgeddl.kernels.native.convolution import (
    convolution_forward,
    convolution_input_gradient,
    convolution_weight_gradient,
)
from edgeddl.kernels.window import Window

_PIXEL = Window(1, 1)


def _as_pixels(rows: Array) -> Array:
    """(N, C) as images of a single pixel."""
    return contiguous(rows)[:, :, None, None]


def _as_weights(W: Array) -> Array:
    """(M, L) as the weights (L, M, 1, 1) of that convolution."""
    return W.T[:, :, None, None]


def linear_forward(x: Array, W: Array, b: Array | None) -> Array:
    """y (N, M) = x (N, L) times W (M, L) transposed, plus b (M,)."""
    shape = (len(x), len(W), 1, 1)
    y = convolution_input_gradient(_as_pixels(x), _as_weights(W), shape, _PIXEL)[:, :, 0, 0]
    if b is not None:
        after(np.add, y, b, y)
    return y


def linear_weight_gradient(x: Array, gy: Array, out: Array | None = None) -> Array:
    """gW (M, L)."""
    gW = np.empty((gy.shape[1], x.shape[1]), np.float32) if out is None else out
    convolution_weight_gradient(_as_pixels(gy), _as_pixels(x), _PIXEL, 1, _as_weights(gW))
    return gW


def linear_input_gradient(gy: Array, W: Array) -> Array:
    """gx (N, L)."""
    return convolution_forward(_as_pixels(gy), _as_weights(W), None, _PIXEL)[:, :, 0, 0]
