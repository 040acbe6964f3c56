"""Memory order of activations and weights.

Shapes are Chainer's everywhere: activations (N, C, H, W), convolution weights (K, C, kh, kw). In
memory, activations are channels last, [N][H][W][C], and weights [kh][kw][C][K]: each row of an
input window is then contiguous, and both are matrices that can be multiplied.

N images, C input channels, K output channels, H x W pixels, kh x kw window.
"""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.call_queue import flush

Array = np.ndarray
Shape4 = tuple[int, int, int, int]


class _Conversions:
    count = 0


def conversions() -> int:
    """How many arrays had to be copied into another memory order so far."""
    return _Conversions.count


def contiguous(array: Array) -> Array:
    """As np.ascontiguousarray, for an array that a queued kernel may still have to write."""
    if array.flags.c_contiguous:
        return array
    flush()
    return np.ascontiguousarray(array)


def _contiguous(array: Array) -> Array:
    result = contiguous(array)
    if result is not array:
        _Conversions.count += 1
    return result


def as_nhwc(x: Array) -> Array:
    """(N, C, H, W) as a C-contiguous (N, H, W, C) array: a view if x is channels last."""
    return _contiguous(x.transpose(0, 2, 3, 1))


def as_channels_last(x: Array) -> Array:
    """(N, C, H, W) as as_nhwc does, or (N, C), C-contiguous."""
    return _contiguous(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x)


def from_channels_last(x: Array) -> Array:
    """The inverse of as_channels_last: a view."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def as_rows(x: Array) -> Array:
    """(N, C, H, W) or (N, C) as a matrix with a column for each channel."""
    return as_channels_last(x).reshape(-1, x.shape[1])


def from_rows(rows: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of as_rows: a channels-last view of the given shape."""
    if len(shape) == 2:
        return rows
    n, c, h, w = shape
    return rows.reshape(n, h, w, c).transpose(0, 3, 1, 2)


def as_hwck(W: Array) -> Array:
    """(K, C, kh, kw) as a C-contiguous (kh, kw, C, K) array: a view if W is in kernel order."""
    return _contiguous(W.transpose(2, 3, 1, 0))


def as_matrix(W: Array) -> Array:
    """(K, C, kh, kw) as a matrix (kh*kw*C, K)."""
    return as_hwck(W).reshape(-1, W.shape[0])


def kernel_order(W: Array) -> Array:
    """An equal array (K, C, kh, kw) whose memory is [kh][kw][C][K]."""
    return np.ascontiguousarray(W.transpose(2, 3, 1, 0)).transpose(3, 2, 0, 1)


def in_kernel_order(W: Array) -> bool:
    """Whether the memory of W (K, C, kh, kw) is [kh][kw][C][K]."""
    return W.transpose(2, 3, 1, 0).flags.c_contiguous


def channels_last(x: Array) -> Array:
    """An equal array (N, C, H, W) whose memory is [N][H][W][C]."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
