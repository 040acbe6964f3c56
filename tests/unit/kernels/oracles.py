"""Convolution in float64, and the error limits of float32 kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from edgeddl.kernels.window import Window

UNIT_ROUNDOFF = 2.0**-24


def sum_limit(length: int, magnitudes: np.ndarray) -> np.ndarray:
    """Return the error limit of a float32 sum of products.

    It is 4 sqrt(length) u times the sum of magnitudes: rounding errors accumulate like a random
    walk. With the factor 4, at most one sum in a thousand exceeds the limit by chance (Higham and
    Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019). Sums in blocks are far
    below it. A single lost or doubled product exceeds it as long as length < 10,000.
    """
    return 4 * np.sqrt(length) * UNIT_ROUNDOFF * magnitudes + 1e-30


def winograd_limit(limit: np.ndarray, tile: int | None) -> np.ndarray:
    """Return the error limit of a result of Winograd's algorithm.

    The algorithm computes the outputs of a tile together, from sums and differences of all of
    them. Each output has rounding errors of the size of the largest, even if it sums nothing but
    padding. The limit is therefore that of the largest sum within a tile, doubled for the
    transforms. For a weight gradient (tile None) it is that of the largest of its taps.
    """
    if tile is None:
        return 2 * np.broadcast_to(limit.max(axis=(2, 3), keepdims=True), limit.shape)
    reach, span = tile - 1, 2 * tile - 1
    padded = np.pad(limit, ((0, 0), (0, 0), (reach, reach), (reach, reach)))
    return 2 * sliding_window_view(padded, (span, span), axis=(2, 3)).max(axis=(4, 5))


# Relative root mean square error against float64, for any layer. PyTorch's kernels have up to
# 1.6e-6, sums of float32 products 2e-7 to 9e-7.
WINOGRAD_RMS = 3e-6


def _taps(padded: np.ndarray, window: Window) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield a view of the pixels at each position (i, j) in the window."""
    span_h, span_w = window.span
    for i in range(window.kh):
        for j in range(window.kw):
            rows = slice(i * window.dy, padded.shape[2] - span_h + i * window.dy + 1, window.sy)
            left, right = j * window.dx, padded.shape[3] - span_w + j * window.dx + 1
            yield i, j, padded[:, :, rows, left : right : window.sx]


def _pad(x: np.ndarray, window: Window) -> np.ndarray:
    pads = ((0, 0), (0, 0), (window.ph, window.ph), (window.pw, window.pw))
    return np.pad(x.astype(np.float64), pads)


def _matrices(images: np.ndarray, groups: int) -> np.ndarray:
    """(N, C, H, W) as a matrix (channels, pixels) for each image and group."""
    n, c, h, w = images.shape
    return images.reshape(n, groups, c // groups, h * w)


def _weights(W: np.ndarray, groups: int) -> np.ndarray:
    """A matrix (K/groups, C/groups) for each position in the window and group."""
    weights = np.ascontiguousarray(W.transpose(2, 3, 0, 1), np.float64)
    return weights.reshape(*W.shape[2:], groups, -1, W.shape[1])


def convolution(x: np.ndarray, W: np.ndarray, window: Window, groups: int = 1) -> np.ndarray:
    padded, weights = _pad(x, window), _weights(W, groups)
    y = sum(weights[i, j] @ _matrices(pixels, groups) for i, j, pixels in _taps(padded, window))
    return y.reshape(len(x), len(W), *window.output_size(*x.shape[2:]))


def weight_gradient(x: np.ndarray, gy: np.ndarray, window: Window, groups: int = 1) -> np.ndarray:
    padded, gradients = _pad(x, window), _matrices(gy.astype(np.float64), groups)
    gW = np.zeros((gy.shape[1], x.shape[1] // groups, window.kh, window.kw))
    for i, j, pixels in _taps(padded, window):
        products = gradients @ _matrices(pixels, groups).swapaxes(2, 3)
        gW[:, :, i, j] = products.sum(axis=0).reshape(gW.shape[:2])
    return gW


def input_gradient(
    gy: np.ndarray, W: np.ndarray, shape: tuple, window: Window, groups: int = 1
) -> np.ndarray:
    gradients, weights = _matrices(gy.astype(np.float64), groups), _weights(W, groups)
    padded = _pad(np.zeros(shape), window)
    for i, j, pixels in _taps(padded, window):
        spread = weights[i, j].swapaxes(1, 2) @ gradients
        pixels += spread.reshape(pixels.shape)
    h, w = shape[2:]
    return padded[:, :, window.ph : window.ph + h, window.pw : window.pw + w]
