"""Entry points of pooling."""

from __future__ import annotations

from edgeddl.errors import KernelError
from edgeddl.kernels.checks import check_array, check_image_shape, check_images
from edgeddl.kernels.layout import Array, Shape4
from edgeddl.kernels.selection import selected
from edgeddl.kernels.window import Window


def max_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the maximum of each window."""
    check_images("x", x)
    _pooled_size(window, x.shape)
    return selected.implementation.max_pooling_forward(x, window)


def max_pooling_backward(x: Array, y: Array, gy: Array, window: Window) -> Array:
    """gx, from what went into and came out of max_pooling_forward."""
    check_images("x", x)
    for name, array in (("y", y), ("gy", gy)):
        check_array(name, array, (*x.shape[:2], *_pooled_size(window, x.shape)))
    return selected.implementation.max_pooling_backward(x, y, gy, window)


def average_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the sum of each window over kh*kw; what is outside counts as 0."""
    check_images("x", x)
    _pooled_size(window, x.shape)
    return selected.implementation.average_pooling_forward(x, window)


def average_pooling_backward(gy: Array, x_shape: Shape4, window: Window) -> Array:
    """gx, of shape x_shape (N, C, H, W)."""
    check_image_shape("x_shape", x_shape)
    check_array("gy", gy, (*x_shape[:2], *_pooled_size(window, x_shape)))
    return selected.implementation.average_pooling_backward(gy, x_shape, window)


def _pooled_size(window: Window, x_shape: tuple[int, ...]) -> tuple[int, int]:
    if (window.dy, window.dx) != (1, 1):
        raise KernelError(f"pooling takes whole windows, without dilation: {window}")
    return window.output_size(*x_shape[2:])


def global_average_forward(x: Array) -> Array:
    """y (N, C): the mean over all pixels."""
    check_images("x", x)
    return selected.implementation.global_average_forward(x)


def global_average_backward(gy: Array, x_shape: Shape4) -> Array:
    """gx, of shape x_shape (N, C, H, W)."""
    check_image_shape("x_shape", x_shape)
    check_array("gy", gy, x_shape[:2])
    return selected.implementation.global_average_backward(gy, x_shape)
