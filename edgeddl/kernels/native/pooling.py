"""Max pooling, average pooling, and the mean over all pixels, in C."""

from __future__ import annotations

import ctypes

import numpy as np

from edgeddl.kernels.layout import Array, Shape4, as_nhwc, contiguous
from edgeddl.kernels.native.library import load
from edgeddl.kernels.window import Window

_forward = load().deferrable_function("pooling_forward", "sipw")
_backward = load().deferrable_function("pooling_backward", "sipppw")
_global_forward = load().deferrable_function("global_average_forward", "lllpw")
_global_backward = load().deferrable_function("global_average_backward", "lllpw")


class _Pooling(ctypes.Structure):
    """struct pooling of csrc/pooling.c."""

    _fields_ = [
        (name, ctypes.c_long)
        for name in ("n", "h", "w", "c", "kh", "kw", "sy", "sx", "ph", "pw", "out_h", "out_w")
    ]


def _shape(x_shape: tuple[int, ...], window: Window) -> _Pooling:
    n, c, h, w = x_shape
    return _Pooling(
        n, h, w, c, window.kh, window.kw, window.sy, window.sx, window.ph, window.pw,
        *window.output_size(h, w),
    )  # fmt: skip


def max_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the largest number of each window; padding never wins."""
    return _pool(x, window, largest=True)


def average_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the sum of each window over kh*kw; padding counts as 0."""
    return _pool(x, window, largest=False)


def _pool(x: Array, window: Window, *, largest: bool) -> Array:
    shape = _shape(x.shape, window)
    y = np.empty((shape.n, shape.out_h, shape.out_w, shape.c), np.float32)
    _forward(ctypes.byref(shape), largest, as_nhwc(x), y)
    return y.transpose(0, 3, 1, 2)


def max_pooling_backward(x: Array, y: Array, gy: Array, window: Window) -> Array:
    """gx (N, C, H, W): gy goes to the first pixel of each window that equals its maximum."""
    images = as_nhwc(x)
    gx = np.empty_like(images)
    shape = ctypes.byref(_shape(x.shape, window))
    _backward(shape, True, images, as_nhwc(y), as_nhwc(gy), gx)
    return gx.transpose(0, 3, 1, 2)


def average_pooling_backward(gy: Array, x_shape: Shape4, window: Window) -> Array:
    """gx (N, C, H, W): gy over kh*kw, to every pixel of each window."""
    n, c, h, w = x_shape
    gx = np.empty((n, h, w, c), np.float32)
    _backward(ctypes.byref(_shape(x_shape, window)), False, None, None, as_nhwc(gy), gx)
    return gx.transpose(0, 3, 1, 2)


def global_average_forward(x: Array) -> Array:
    """y (N, C): the mean over the pixels of each image."""
    n, c, h, w = x.shape
    y = np.empty((n, c), np.float32)
    _global_forward(n, h * w, c, as_nhwc(x), y)
    return y


def global_average_backward(gy: Array, x_shape: Shape4) -> Array:
    """gx (N, C, H, W), channels last: gy, spread evenly over the pixels."""
    n, c, h, w = x_shape
    gx = np.empty((n, h, w, c), np.float32)
    _global_backward(n, h * w, c, contiguous(gy), gx)
    return gx.transpose(0, 3, 1, 2)
