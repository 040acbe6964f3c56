"""Max pooling, average pooling, and the mean over all pixels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from edgeddl.errors import KernelError
from edgeddl.kernels.binding import QueuedFunction, structure
from edgeddl.kernels.checks import check_array, check_image_shape, check_images
from edgeddl.kernels.layout import Array, Shape4, as_nhwc, contiguous
from edgeddl.kernels.reference import pooling as reference
from edgeddl.kernels.selection import selected
from edgeddl.kernels.window import Window

_forward = QueuedFunction("pooling_forward", "sipw")
_backward = QueuedFunction("pooling_backward", "sipppw")
_global_forward = QueuedFunction("global_average_forward", "lllpw")
_global_backward = QueuedFunction("global_average_backward", "lllpw")

# `pooling` in csrc/edgeddl.h
POOLING = np.dtype(
    [
        (name, np.int64)
        for name in ("n", "h", "w", "c", "kh", "kw", "sy", "sx", "ph", "pw", "out_h", "out_w")
    ]
)


def max_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the maximum of each window; padding is never the maximum."""
    check_images("x", x)
    pooling, y_shape = _geometry(x.shape, window)
    if selected.library is None:
        return reference.max_pooling_forward(x, window)
    return _pool(pooling, x, y_shape, largest=True)


def average_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the sum of each window over kh*kw; padding counts as 0."""
    check_images("x", x)
    pooling, y_shape = _geometry(x.shape, window)
    if selected.library is None:
        return reference.average_pooling_forward(x, window)
    return _pool(pooling, x, y_shape, largest=False)


def _pool(pooling: Array, x: Array, y_shape: Shape4, *, largest: bool) -> Array:
    n, c, out_h, out_w = y_shape
    y = np.empty((n, out_h, out_w, c), np.float32)
    _forward(pooling, largest, as_nhwc(x), y)
    return y.transpose(0, 3, 1, 2)


def max_pooling_backward(x: Array, y: Array, gy: Array, window: Window) -> Array:
    """gx: gy goes to the first pixel of each window that equals the window's maximum."""
    check_images("x", x)
    pooling, y_shape = _geometry(x.shape, window)
    check_array("y", y, y_shape)
    check_array("gy", gy, y_shape)
    if selected.library is None:
        return reference.max_pooling_backward(x, y, gy, window)
    images = as_nhwc(x)
    gx = np.empty_like(images)
    _backward(pooling, True, images, as_nhwc(y), as_nhwc(gy), gx)
    return gx.transpose(0, 3, 1, 2)


def average_pooling_backward(gy: Array, x_shape: Shape4, window: Window) -> Array:
    """gx, of shape x_shape (N, C, H, W): gy over kh*kw, to every pixel of each window."""
    check_image_shape("x_shape", x_shape)
    pooling, y_shape = _geometry(tuple(x_shape), window)
    check_array("gy", gy, y_shape)
    if selected.library is None:
        return reference.average_pooling_backward(gy, x_shape, window)
    n, c, h, w = x_shape
    gx = np.empty((n, h, w, c), np.float32)
    _backward(pooling, False, None, None, as_nhwc(gy), gx)
    return gx.transpose(0, 3, 1, 2)


@lru_cache(maxsize=1024, typed=True)  # a network has few layers
def _geometry(x_shape: Shape4, window: Window) -> tuple[Array, Shape4]:
    """The layer as a `pooling`, and the shape of y."""
    kh, kw, sy, sx, ph, pw, _, dy, dx = window
    if (dy, dx) != (1, 1):
        raise KernelError(f"pooling does not support dilation: {window}")
    n, c, h, w = x_shape
    out_h, out_w = window.output_size(h, w)
    pooling = structure(POOLING, n, h, w, c, kh, kw, sy, sx, ph, pw, out_h, out_w)
    return pooling, (n, c, out_h, out_w)


def global_average_forward(x: Array) -> Array:
    """y (N, C): the mean over the pixels of each image."""
    check_images("x", x)
    if selected.library is None:
        return reference.global_average_forward(x)
    n, c, h, w = x.shape
    y = np.empty((n, c), np.float32)
    _global_forward(n, h * w, c, as_nhwc(x), y)
    return y


def global_average_backward(gy: Array, x_shape: Shape4) -> Array:
    """gx, of shape x_shape (N, C, H, W): gy, spread evenly over the pixels."""
    check_image_shape("x_shape", x_shape)
    check_array("gy", gy, x_shape[:2])
    if selected.library is None:
        return reference.global_average_backward(gy, x_shape)
    n, c, h, w = x_shape
    gx = np.empty((n, h, w, c), np.float32)
    _global_backward(n, h * w, c, contiguous(gy), gx)
    return gx.transpose(0, 3, 1, 2)
