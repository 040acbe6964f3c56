"""The windows of images: as views, and as the rows of a matrix.

Images are C-contiguous (N, H, W, C) arrays here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from edgeddl.kernels.layout import Array
from edgeddl.kernels.window import Window

# The windows of a batch take kh*kw times its memory, so they are laid out for a few whole images at
# a time: as many as fit into this size, at least one. A ResNet-18 step, batch 32, one thread of a
# 2.8 GHz Xeon, best of 5: 4 MiB 1.57 s, 8 MiB 1.55 s, 16 MiB 1.77 s, 32 MiB 1.67 s.
COLUMN_BYTES = 8 << 20


def split_images(count: int, bytes_each: int) -> list[slice]:
    """Slices of nearly equal length, of at most COLUMN_BYTES or of one image each."""
    pieces = min(count, -(-count * bytes_each // COLUMN_BYTES))
    edges = [count * piece // pieces for piece in range(pieces + 1)] if pieces else []
    return [slice(start, stop) for start, stop in pairwise(edges)]


def column_parts(images: Array, window: Window) -> Iterator[tuple[slice, Array]]:
    """All windows as rows of kh*kw*C numbers, for some images at a time: (images, rows).

    The rows are valid until the next iteration.
    """
    n, h, w, c = images.shape
    if window.is_pointwise:
        yield slice(0, n), images[:, :: window.sy, :: window.sx].reshape(-1, c)
        return
    shape = (*window.output_size(h, w), window.kh, window.kw, c)
    parts = split_images(n, 4 * int(np.prod(shape)))
    buffer = np.empty((max((part.stop - part.start for part in parts), default=0), *shape), "f4")
    for part in parts:
        columns = buffer[: part.stop - part.start]
        columns[...] = window_view(pad_images(images[part], window, 0.0), window)
        yield part, columns.reshape(-1, window.kh * window.kw * c)


def pad_images(images: Array, window: Window, value: float) -> Array:
    """The images with the padding that the windows reach into."""
    n, h, w, c = images.shape
    size = window.covered_size(h, w)
    if size == (h, w):
        return images
    padded = np.full((n, *size, c), value, np.float32)
    crop_padding(padded, h, w, window)[...] = images
    return padded


def crop_padding(padded: Array, h: int, w: int, window: Window) -> Array:
    """A view of the images within their padding."""
    return padded[:, window.ph : window.ph + h, window.pw : window.pw + w]


def window_view(padded: Array, window: Window) -> Array:
    """A view (N, H', W', kh, kw, C) of all windows."""
    windows = sliding_window_view(padded, window.span, axis=(1, 2))
    windows = windows[:, :: window.sy, :: window.sx, :, :: window.dy, :: window.dx]
    return windows.transpose(0, 1, 2, 4, 5, 3)


def window_positions(padded: Array, window: Window) -> Iterator[tuple[int, int, Array]]:
    """For each position (i, j) in the window, a view (N, H', W', C) of the pixels there."""
    span_h, span_w = window.span
    height = (padded.shape[1] - span_h) // window.sy * window.sy + 1
    width = (padded.shape[2] - span_w) // window.sx * window.sx + 1
    for i in range(window.kh):
        for j in range(window.kw):
            top, left = i * window.dy, j * window.dx
            yield i, j, padded[:, top : top + height : window.sy, left : left + width : window.sx]
