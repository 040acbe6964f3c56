"""Convolution and its two gradients."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from edgeddl.kernels.batch_statistics import FoldedNormalization
from edgeddl.kernels.binding import QueuedFunction, structure
from edgeddl.kernels.call_queue import call_in_order
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
from edgeddl.kernels.layout import Array, Shape4, as_hwck, as_nhwc
from edgeddl.kernels.reference import convolution as reference
from edgeddl.kernels.selection import selected
from edgeddl.kernels.window import Window

# binding.py explains the letters.
native_forward = QueuedFunction("convolution_forward", "spvvpvw")
native_weight_gradient = QueuedFunction("convolution_weight_gradient", "spvvpw")
native_input_gradient = QueuedFunction("convolution_input_gradient", "spppw")

# `conv` in csrc/edgeddl.h (its longs are 64-bit on supported platforms)
CONV = np.dtype(
    [
        (name, np.int64)
        for name in (
            "n", "h", "w", "c", "k", "kh", "kw", "sy", "sx", "ph", "pw", "dy", "dx",
            "groups", "out_h", "out_w",
        )
    ]
)  # fmt: skip
_NOT_NORMALIZED = None, None


def convolution_forward(
    x: Array,
    W: Array,
    b: Array | None,
    window: Window,
    groups: int = 1,
    normalization: FoldedNormalization | None = None,
) -> Array:
    """Convolve x with W and add b if given; returns y (N, K, H', W').

    With `normalization`, x is normalised and rectified as it is read.

    With groups, W is (K, C/groups, kh, kw): the channels are split into equal groups, in order, and
    each group of outputs is computed from its group of inputs.
    """
    check_images("x", x)
    if not (is_plain(W) and W.ndim == 4):
        check_array("W", W, (None, None, window.kh, window.kw))
    conv, (n, k, out_h, out_w) = _geometry(x.shape, W.shape, window, groups)
    if b is not None:
        check_channels(k, b=b)
    _check_normalization(normalization, x)
    if selected.library is None:
        return reference.convolution_forward(x, W, b, window, groups, normalization)
    y = np.empty((n, out_h, out_w, k), np.float32)
    native_forward(conv, as_nhwc(x), *(normalization or _NOT_NORMALIZED), as_hwck(W), b, y)
    return y.transpose(0, 3, 1, 2)


def convolution_weight_gradient(
    x: Array,
    gy: Array,
    window: Window,
    groups: int = 1,
    out: Array | None = None,
    normalization: FoldedNormalization | None = None,
) -> Array:
    """Gradient of W, (K, C/groups, kh, kw), written to `out` if given.

    Avoids a copy if `out` is in kernel order (layout.py).
    """
    check_images("x", x)
    if not is_plain(gy):
        check_array("gy", gy, (len(x), None, *window.output_size(*x.shape[2:])))
    conv, gW_shape = _weight_geometry(x.shape, gy.shape, window, groups)
    if out is not None:
        check_array("out", out, gW_shape)
        check_writable("out", out, x=x, gy=gy)
    _check_normalization(normalization, x)
    if selected.library is None:
        return reference.convolution_weight_gradient(x, gy, window, groups, out, normalization)
    if out is None:
        k, c_each, kh, kw = gW_shape
        out = np.empty((kh, kw, c_each, k), np.float32).transpose(3, 2, 0, 1)
    target = out.transpose(2, 3, 1, 0)
    gW = target if target.flags.c_contiguous else np.empty(target.shape, np.float32)
    native_weight_gradient(conv, as_nhwc(x), *(normalization or _NOT_NORMALIZED), as_nhwc(gy), gW)
    if gW is not target:
        call_in_order(np.copyto, target, gW)
    return out


def convolution_input_gradient(
    gy: Array,
    W: Array,
    x_shape: Shape4,
    window: Window,
    groups: int = 1,
    plus: Array | None = None,
) -> Array:
    """Gradient of x, plus `plus` if given (another gradient of x to accumulate)."""
    check_image_shape("x_shape", x_shape)
    if not (is_plain(W) and W.ndim == 4):
        check_array("W", W, (None, None, window.kh, window.kw))
    conv, gy_shape = _geometry(tuple(x_shape), W.shape, window, groups)
    check_array("gy", gy, gy_shape)
    if plus is not None:
        check_array("plus", plus, x_shape)
    if selected.library is None:
        return reference.convolution_input_gradient(gy, W, x_shape, window, groups, plus)
    n, c, h, w = x_shape
    gx = np.empty((n, h, w, c), np.float32)
    added = None if plus is None else as_nhwc(plus)
    native_input_gradient(conv, as_nhwc(gy), as_hwck(W), added, gx)
    return gx.transpose(0, 3, 1, 2)


# A network has few layers. Typed, so that groups=1.0 does not find the entry of groups=1: it would
# skip check_groups.
@lru_cache(maxsize=1024, typed=True)
def _geometry(
    x_shape: Shape4, W_shape: tuple[int, ...], window: Window, groups: int
) -> tuple[Array, Shape4]:
    """The convolution as a `conv`, and the shape of y; checks the shape of W."""
    (n, c, h, w), k = x_shape, W_shape[0]
    check_shape("W", W_shape, (None, None, window.kh, window.kw))
    check_groups(groups, c, k)
    check_shape("W", W_shape, (None, c // groups, window.kh, window.kw))
    out_h, out_w = window.output_size(h, w)
    kh, kw, sy, sx, ph, pw, _, dy, dx = window
    conv = structure(CONV, n, h, w, c, k, kh, kw, sy, sx, ph, pw, dy, dx, groups, out_h, out_w)
    return conv, (n, k, out_h, out_w)


@lru_cache(maxsize=1024, typed=True)
def _weight_geometry(
    x_shape: Shape4, gy_shape: tuple[int, ...], window: Window, groups: int
) -> tuple[Array, Shape4]:
    """The convolution as a `conv`, and the shape of gW; checks the shape of gy."""
    n, c, h, w = x_shape
    check_shape("gy", gy_shape, (n, None, *window.output_size(h, w)))
    check_groups(groups, c, gy_shape[1])
    gW_shape = gy_shape[1], c // groups, window.kh, window.kw
    return _geometry(x_shape, gW_shape, window, groups)[0], gW_shape


def _check_normalization(normalization: FoldedNormalization | None, x: Array) -> None:
    if normalization is not None:
        check_channels(x.shape[1], scale=normalization.scale, shift=normalization.shift)
