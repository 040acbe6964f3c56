"""Max pooling, average pooling, and the mean over all pixels."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array, as_nhwc
from edgeddl.kernels.reference.columns import crop_padding, pad_images, window_positions
from edgeddl.kernels.window import Window


def max_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the maximum of each window; padding is never the maximum."""
    padded = pad_images(as_nhwc(x), window, -np.inf)
    y: Array | None = None
    for _, _, pixels in window_positions(padded, window):
        y = pixels.copy() if y is None else np.maximum(y, pixels, out=y)
    assert y is not None
    return y.transpose(0, 3, 1, 2)


def max_pooling_backward(x: Array, y: Array, gy: Array, window: Window) -> Array:
    """gx (N, C, H, W): gy goes to the first pixel of each window that equals its maximum.

    The first, as in Chainer. Ties are common: after a ReLU, whole windows are zero.
    """
    padded = pad_images(as_nhwc(x), window, -np.inf)
    peak, gradient = as_nhwc(y), as_nhwc(gy)
    gx = np.zeros_like(padded)
    undecided = np.ones(peak.shape, bool)
    targets = window_positions(gx, window)
    for (_, _, pixels), (_, _, target) in zip(
        window_positions(padded, window), targets, strict=True
    ):
        wins = np.equal(pixels, peak) | np.isnan(pixels)  # the maximum is then NaN, too
        wins &= undecided
        undecided ^= wins
        target += np.where(wins, gradient, np.float32(0))
    h, w = x.shape[2:]
    return np.ascontiguousarray(crop_padding(gx, h, w, window)).transpose(0, 3, 1, 2)


def average_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the sum of each window over kh*kw; padding counts as 0."""
    padded = pad_images(as_nhwc(x), window, 0.0)
    y: Array | None = None
    for _, _, pixels in window_positions(padded, window):
        y = pixels.copy() if y is None else np.add(y, pixels, out=y)
    assert y is not None
    y /= np.float32(window.kh * window.kw)
    return y.transpose(0, 3, 1, 2)


def average_pooling_backward(
    gy: Array, x_shape: tuple[int, int, int, int], window: Window
) -> Array:
    """gx (N, C, H, W): gy over kh*kw, to every pixel of each window."""
    n, c, h, w = x_shape
    share = as_nhwc(gy) / np.float32(window.kh * window.kw)
    gx = np.zeros((n, *window.covered_size(h, w), c), np.float32)
    for _, _, target in window_positions(gx, window):
        target += share
    return np.ascontiguousarray(crop_padding(gx, h, w, window)).transpose(0, 3, 1, 2)


def global_average_forward(x: Array) -> Array:
    """y (N, C): the mean over the pixels of each image."""
    n, c = x.shape[:2]
    return as_nhwc(x).reshape(n, -1, c).mean(axis=1)


def global_average_backward(gy: Array, x_shape: tuple[int, int, int, int]) -> Array:
    """gx (N, C, H, W), channels last: gy, spread evenly over the pixels."""
    n, c, h, w = x_shape
    gx = np.empty((n, h, w, c), np.float32)
    gx[...] = (gy / np.float32(h * w))[:, None, None, :]
    return gx.transpose(0, 3, 1, 2)
