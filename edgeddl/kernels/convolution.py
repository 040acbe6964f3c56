"""Entry points of convolution and its two gradients."""

from __future__ import annotations

from functools import lru_cache

from edgeddl.kernels.checks import (
    check_array,
    check_channels,
    check_groups,
    check_image_shape,
    check_images,
    check_shape,
    check_writable,
    is_plain,
)
from edgeddl.kernels.layout import Array, Shape4
from edgeddl.kernels.prologue import Prologue
from edgeddl.kernels.selection import selected
from edgeddl.kernels.window import Window


def convolution_forward(
    x: Array,
    W: Array,
    b: Array | None,
    window: Window,
    groups: int = 1,
    before: Prologue | None = None,
) -> Array:
    """y (N, K, H', W'): W, and b if given, applied to each window of x.

    With a prologue, x is normalised and rectified as it is read.

    With groups, W is (K, C/groups, kh, kw): the channels are cut into so many equal parts, in
    order, and each part of the output sees only its part of the input.
    """
    check_images("x", x)
    _check_weights(W, x.shape, window, groups)
    if b is not None:
        check_channels(len(W), b=b)
    if before is not None:
        check_channels(x.shape[1], scale=before.scale, shift=before.shift)
    return selected.implementation.convolution_forward(x, W, b, window, groups, before)


def _check_weights(W: Array, x_shape: tuple[int, ...], window: Window, groups: int) -> Shape4:
    """Whether the weights fit the image and the window; returns the shape of y."""
    if not (is_plain(W) and W.ndim == 4):
        check_array("W", W, (None, None, window.kh, window.kw))
    return _convolved_shape(x_shape, W.shape, window, groups)


@lru_cache(maxsize=1024, typed=True)  # the layers of a network, again and again
def _convolved_shape(
    x_shape: Shape4, W_shape: tuple[int, ...], window: Window, groups: int
) -> Shape4:
    (n, c, h, w), k = x_shape, W_shape[0]
    check_shape("W", W_shape, (None, None, window.kh, window.kw))
    check_groups(groups, c, k)
    check_shape("W", W_shape, (None, c // groups, window.kh, window.kw))
    return n, k, *window.output_size(h, w)


def convolution_weight_gradient(
    x: Array,
    gy: Array,
    window: Window,
    groups: int = 1,
    out: Array | None = None,
    before: Prologue | None = None,
) -> Array:
    """gW (K, C/groups, kh, kw), written to `out` if given: fastest if that is in kernel order."""
    check_images("x", x)
    if not is_plain(gy):
        check_array("gy", gy, (len(x), None, *window.output_size(*x.shape[2:])))
    gW_shape = _weight_shape(x.shape, gy.shape, window, groups)
    if out is not None:
        check_array("out", out, gW_shape)
        check_writable("out", out, x=x, gy=gy)
    if before is not None:
        check_channels(x.shape[1], scale=before.scale, shift=before.shift)
    return selected.implementation.convolution_weight_gradient(x, gy, window, groups, out, before)


@lru_cache(maxsize=1024, typed=True)
def _weight_shape(
    x_shape: Shape4, gy_shape: tuple[int, ...], window: Window, groups: int
) -> Shape4:
    n, c, h, w = x_shape
    check_shape("gy", gy_shape, (n, None, *window.output_size(h, w)))
    check_groups(groups, c, gy_shape[1])
    return gy_shape[1], c // groups, window.kh, window.kw


def convolution_input_gradient(
    gy: Array,
    W: Array,
    x_shape: Shape4,
    window: Window,
    groups: int = 1,
    plus: Array | None = None,
) -> Array:
    """gx, of shape x_shape (N, C, H, W); plus another gradient of x, if given."""
    check_image_shape("x_shape", x_shape)
    check_array("gy", gy, _check_weights(W, tuple(x_shape), window, groups))
    if plus is not None:
        check_array("plus", plus, x_shape)
    return selected.implementation.convolution_input_gradient(gy, W, x_shape, window, groups, plus)
