"""Max pooling, mean over the pixels, ReLU and matrix kernels."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels.window import Window

WINDOWS = [
    ((2, 5, 8, 8), Window(2, 2, 2, 2, cover_all=True)),
    ((2, 5, 7, 9), Window(2, 2, 2, 2, cover_all=True)),
    ((2, 5, 7, 9), Window(2, 2, 2, 2)),
    ((2, 64, 16, 16), Window(3, 3, 2, 2, 1, 1)),
    ((2, 3, 8, 7), Window(3, 2, 1, 3, 1, 0, cover_all=True)),
    ((1, 1, 1, 1), Window(3, 3, 2, 2, 1, 1)),
    ((2, 256, 4, 4), Window(4, 4, 4, 4, cover_all=True)),
]


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def pool_slowly(x: np.ndarray, window: Window) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of each window, and the flat index in its image of the first pixel with it."""
    n, c, h, w = x.shape
    out_h, out_w = window.output_size(h, w)
    y = np.empty((n, c, out_h, out_w), np.float32)
    where = np.empty(y.shape, int)
    for i, j in np.ndindex(out_h, out_w):
        top, left = i * window.sy - window.ph, j * window.sx - window.pw
        rows = slice(max(top, 0), min(top + window.kh, h))
        columns = slice(max(left, 0), min(left + window.kw, w))
        pixels = x[:, :, rows, columns]
        first = pixels.reshape(n, c, -1).argmax(axis=2)
        y[:, :, i, j] = pixels.max(axis=(2, 3))
        width = pixels.shape[3]
        where[:, :, i, j] = (rows.start + first // width) * w + columns.start + first % width
    return y, where


@pytest.mark.parametrize(("shape", "window"), WINDOWS)
@pytest.mark.parametrize("ties", [False, True])
def test_max_pooling(shape: tuple, window: Window, ties: bool) -> None:
    x = np.maximum(np.round(random(shape)), 0) if ties else random(shape)
    expected, where = pool_slowly(x, window)
    y = kernels.max_pooling_forward(x, window)
    np.testing.assert_array_equal(y, expected)
    gy = np.round(8 * random(y.shape, 1))  # whole numbers: sums are exact in any order
    gx = np.zeros((*shape[:2], shape[2] * shape[3]), np.float32)
    for n, c in np.ndindex(*shape[:2]):
        np.add.at(gx[n, c], where[n, c].ravel(), gy[n, c].ravel())
    found = kernels.max_pooling_backward(x, y, gy, window)
    np.testing.assert_array_equal(found, gx.reshape(shape))
    assert found.transpose(0, 2, 3, 1).flags.c_contiguous


def test_global_average() -> None:
    x = random((3, 5, 4, 6))
    y = kernels.global_average_forward(x)
    np.testing.assert_allclose(y, x.astype(np.float64).mean((2, 3)), rtol=1e-5, atol=1e-6)
    gx = kernels.global_average_backward(y, x.shape)
    np.testing.assert_array_equal(gx, np.broadcast_to((y / 24)[:, :, None, None], x.shape))
    assert gx.transpose(0, 2, 3, 1).flags.c_contiguous and y.dtype == np.float32


@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (40, 70, 20, 20), (7, 9)])
def test_relu(shape: tuple[int, ...]) -> None:
    x, gy = random(shape), random(shape, 1)
    x.flat[0] = 0
    y = kernels.relu_forward(x)
    np.testing.assert_array_equal(y, np.where(x > 0, x, 0))
    np.testing.assert_array_equal(kernels.relu_backward(y, gy), np.where(x > 0, gy, 0))


def test_linear() -> None:
    x, W, b, gy = random((6, 5)), random((4, 5), 1), random((4,), 2), random((6, 4), 3)
    exact = x.astype(np.float64)
    y, gx = kernels.linear_forward(x, W, b), kernels.linear_input_gradient(gy, W)
    np.testing.assert_allclose(y, exact @ W.T + b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gx, gy.astype(np.float64) @ W, rtol=1e-4, atol=1e-5)
    for out in (None, np.empty((4, 5), np.float32), np.empty((5, 4), np.float32).T):
        gW = kernels.linear_weight_gradient(x, gy, out)
        assert out is None or gW is out
        np.testing.assert_allclose(gW, gy.T @ exact, rtol=1e-4, atol=1e-5)


def test_wrong_arguments_are_named() -> None:
    x = random((2, 3, 4, 4))
    window = Window(2, 2, 2, 2)
    with pytest.raises(KernelError, match=r"gy must have the shape \(2, 3, 2, 2\)"):
        kernels.max_pooling_backward(x, x[:, :, ::2, ::2], x, window)
    with pytest.raises(KernelError, match="smaller than the window"):
        kernels.max_pooling_forward(x, Window(5, 5))
    with pytest.raises(KernelError, match=r"W must have the shape \(any, 3\), not \(4, 5\)"):
        kernels.linear_forward(random((2, 3)), random((4, 5)), None)
    with pytest.raises(KernelError, match="gy must have the shape"):
        kernels.relu_backward(x, x[:1])
