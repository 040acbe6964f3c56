"""Convolution written out in float64, and the error limits that float32 kernels must keep."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgeddl.kernels.window import Window

UNIT_ROUNDOFF = 2.0**-24


def sum_limit(length: int, magnitudes: np.ndarray) -> np.ndarray:
    """How far a float32 sum of products may be from the true one.

    4 sqrt(length) u times the sum of magnitudes: rounding errors add up like a random walk, and
    with the factor 4 one sum in a thousand at worst is outside by chance (Higham and Mary, A New
    Approach to Probabilistic Rounding Error Analysis, 2019); sums in blocks are far inside. A
    single lost or doubled product is outside as long as length < 10,000.
    """
    return 4 * np.sqrt(length) * UNIT_ROUNDOFF * magnitudes + 1e-30


def _pixels(padded: np.ndarray, window: Window) -> Iterator[tuple[int, int, tuple]]:
    out_h = (padded.shape[2] - window.kh) // window.sy + 1
    out_w = (padded.shape[3] - window.kw) // window.sx + 1
    for i in range(window.kh):
        for j in range(window.kw):
            rows = i + window.sy * np.arange(out_h)
            columns = j + window.sx * np.arange(out_w)
            yield i, j, (slice(None), slice(None), rows[:, None], columns[None, :])


def _pad(x: np.ndarray, window: Window) -> np.ndarray:
    pads = ((0, 0), (0, 0), (window.ph, window.ph), (window.pw, window.pw))
    return np.pad(x.astype(np.float64), pads)


def convolution(x: np.ndarray, W: np.ndarray, window: Window) -> np.ndarray:
    padded, W64 = _pad(x, window), W.astype(np.float64)
    return sum(
        np.einsum("nchw,kc->nkhw", padded[pixels], W64[:, :, i, j], optimize=True)
        for i, j, pixels in _pixels(padded, window)
    )


def weight_gradient(x: np.ndarray, gy: np.ndarray, window: Window) -> np.ndarray:
    padded, gy64 = _pad(x, window), gy.astype(np.float64)
    gW = np.zeros((gy.shape[1], x.shape[1], window.kh, window.kw))
    for i, j, pixels in _pixels(padded, window):
        gW[:, :, i, j] = np.einsum("nkhw,nchw->kc", gy64, padded[pixels], optimize=True)
    return gW


def input_gradient(gy: np.ndarray, W: np.ndarray, shape: tuple, window: Window) -> np.ndarray:
    gy64, W64 = gy.astype(np.float64), W.astype(np.float64)
    padded = _pad(np.zeros(shape), window)
    for i, j, pixels in _pixels(padded, window):
        padded[pixels] += np.einsum("nkhw,kc->nchw", gy64, W64[:, :, i, j], optimize=True)
    h, w = shape[2:]
    return padded[:, :, window.ph : window.ph + h, window.pw : window.pw + w]
