"""Convolution and its two gradients in C."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from edgeddl.kernels.deferral import after
from edgeddl.kernels.layout import Array, Shape4, as_hwck, as_nhwc
from edgeddl.kernels.native.library import load
from edgeddl.kernels.prologue import Prologue
from edgeddl.kernels.window import Window


class _Shape(ctypes.Structure):
    """struct conv of csrc/convolution.h."""

    _fields_ = [
        (name, ctypes.c_long)
        for name in (
            "n", "h", "w", "c", "k", "kh", "kw", "sy", "sx", "ph", "pw", "dy", "dx",
            "groups", "out_h", "out_w",
        )
    ]  # fmt: skip


@lru_cache(maxsize=1024)  # the layers of a network, again and again
def _shape(x_shape: tuple[int, ...], k: int, window: Window, groups: int) -> tuple[Any, Shape4]:
    """For C; and the shape of y, channels last."""
    n, c, h, w = x_shape
    out_h, out_w = window.output_size(h, w)
    shape = _Shape(
        *(n, h, w, c, k, window.kh, window.kw, window.sy, window.sx, window.ph, window.pw),
        *(window.dy, window.dx, groups, out_h, out_w),
    )
    return ctypes.byref(shape), (n, out_h, out_w, k)


_NO_VECTORS = None, None

_forward = load().deferrable_function("convolution_forward", "spvvpvw")
_weight_gradient = load().deferrable_function("convolution_weight_gradient", "spvvpw")
_input_gradient = load().deferrable_function("convolution_input_gradient", "spppw")


def convolution_forward(
    x: Array,
    W: Array,
    b: Array | None,
    window: Window,
    groups: int = 1,
    before: Prologue | None = None,
) -> Array:
    """y (N, K, H', W'), channels last."""
    shape, y_shape = _shape(x.shape, len(W), window, groups)
    y = np.empty(y_shape, np.float32)
    _forward(shape, as_nhwc(x), *(before or _NO_VECTORS), as_hwck(W), b, y)
    return y.transpose(0, 3, 1, 2)


def convolution_weight_gradient(
    x: Array,
    gy: Array,
    window: Window,
    groups: int = 1,
    out: Array | None = None,
    before: Prologue | None = None,
) -> Array:
    """gW (K, C / groups, kh, kw), written straight to `out` if that is in kernel order."""
    k = gy.shape[1]
    shape = (window.kh, window.kw, x.shape[1] // groups, k)
    if out is None:
        out = np.empty(shape, np.float32).transpose(3, 2, 0, 1)
    target = out.transpose(2, 3, 1, 0)
    gW = target if target.flags.c_contiguous else np.empty(shape, np.float32)
    form, _ = _shape(x.shape, k, window, groups)
    _weight_gradient(form, as_nhwc(x), *(before or _NO_VECTORS), as_nhwc(gy), gW)
    if gW is not target:
        after(np.copyto, target, gW)
    return out


def convolution_input_gradient(
    gy: Array,
    W: Array,
    x_shape: Shape4,
    window: Window,
    groups: int = 1,
    plus: Array | None = None,
) -> Array:
    """gx (N, C, H, W), channels last."""
    n, c, h, w = x_shape
    gx = np.empty((n, h, w, c), np.float32)
    added = None if plus is None else as_nhwc(plus)
    shape, _ = _shape(tuple(x_shape), len(W), window, groups)
    _input_gradient(shape, as_nhwc(gy), as_hwck(W), added, gx)
    return gx.transpose(0, 3, 1, 2)
