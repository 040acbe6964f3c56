"""Max pooling, average pooling and global averages, against slow loops."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels.window import Window
from tests.unit.kernels.layers import random

pytestmark = pytest.mark.usefixtures("implementation")

WINDOWS = [
    ((2, 5, 8, 8), Window(2, 2, 2, 2, cover_all=True)),
    ((2, 5, 7, 9), Window(2, 2, 2, 2, cover_all=True)),
    ((2, 5, 7, 9), Window(2, 2, 2, 2)),
    ((2, 64, 16, 16), Window(3, 3, 2, 2, 1, 1)),
    ((2, 3, 8, 7), Window(3, 2, 1, 3, 1, 0, cover_all=True)),
    ((1, 1, 1, 1), Window(3, 3, 2, 2, 1, 1)),
    ((2, 256, 4, 4), Window(4, 4, 4, 4, cover_all=True)),
    ((5, 17, 31, 33), Window(3, 3)),
    ((3, 30, 33, 2), Window(3, 1, 3, 1, 1, 0)),
    ((3, 7, 9, 9), Window(2, 2, 3, 3)),  # the stride skips pixels
    ((0, 3, 4, 4), Window(2, 2)),
]
by_window = pytest.mark.parametrize(("shape", "window"), WINDOWS)


def slices(shape: tuple, window: Window) -> list[tuple[int, int, slice, slice]]:
    """For each window (i, j), the rows and columns of the image in it."""
    h, w = shape[2:]
    result = []
    for i, j in np.ndindex(*window.output_size(h, w)):
        top, left = i * window.sy - window.ph, j * window.sx - window.pw
        rows = slice(max(top, 0), max(min(top + window.kh, h), 0))
        columns = slice(max(left, 0), max(min(left + window.kw, w), 0))
        result.append((i, j, rows, columns))
    return result


def max_pooling(x: np.ndarray, window: Window) -> np.ndarray:
    y = np.empty((*x.shape[:2], *window.output_size(*x.shape[2:])), np.float32)
    for i, j, rows, columns in slices(x.shape, window):
        y[:, :, i, j] = x[:, :, rows, columns].max(axis=(2, 3), initial=-np.inf)
    return y


def max_pooling_gradient(x: np.ndarray, gy: np.ndarray, window: Window) -> np.ndarray:
    """Each gy is added to the first pixel that equals the maximum of its window."""
    n, c = x.shape[:2]
    gx = np.zeros(x.shape, np.float32)
    for i, j, rows, columns in slices(x.shape, window):
        pixels = x[:, :, rows, columns]
        first = pixels.reshape(n, c, pixels[0, 0].size if n else 1).argmax(axis=2)
        at = np.unravel_index(first, pixels.shape[2:])
        np.add.at(
            gx[:, :, rows, columns], (*np.ogrid[:n, :c], *at), gy[:, :, i, j]
        )  # fmt: skip
    return gx


@by_window
@pytest.mark.parametrize("ties", [False, True])
def test_max_pooling(shape: tuple, window: Window, ties: bool) -> None:
    x = np.maximum(np.round(random(shape, 0)), 0) if ties else random(shape, 0)
    y = kernels.max_pooling_forward(x, window)
    np.testing.assert_array_equal(y, max_pooling(x, window))
    gy = np.round(8 * random(y.shape, 1))  # whole numbers: sums are exact in any order
    gx = kernels.max_pooling_backward(x, y, gy, window)
    np.testing.assert_array_equal(gx, max_pooling_gradient(x, gy, window))
    assert gx.dtype == np.float32 and gx.transpose(0, 2, 3, 1).flags.c_contiguous


@by_window
def test_average_pooling(shape: tuple, window: Window) -> None:
    x = random(shape, 0)
    y = kernels.average_pooling_forward(x, window)
    gy = random(y.shape, 1)
    gx = kernels.average_pooling_backward(gy, shape, window)
    expected_y, expected_gx = np.zeros(y.shape), np.zeros(shape)
    area = window.kh * window.kw
    for i, j, rows, columns in slices(shape, window):
        expected_y[:, :, i, j] = x[:, :, rows, columns].sum((2, 3), np.float64) / area
        expected_gx[:, :, rows, columns] += gy[:, :, i, j, None, None] / area
    # sums of at most 16 numbers below 5, and a division
    np.testing.assert_allclose(y, expected_y, rtol=1e-5, atol=5e-6)
    np.testing.assert_allclose(gx, expected_gx, rtol=1e-5, atol=5e-6)
    for array in (y, gx):
        assert array.dtype == np.float32 and array.transpose(0, 2, 3, 1).flags.c_contiguous


@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (1, 1, 1, 1), (2, 17, 33, 31), (9, 512, 4, 4)])
def test_global_average(shape: tuple) -> None:
    x, pixels = random(shape, 0), shape[2] * shape[3]
    y = kernels.global_average_forward(x)
    # rounding errors accumulate like a random walk: 4 sqrt(pixels) u
    np.testing.assert_allclose(y, x.astype(np.float64).mean((2, 3)), rtol=1e-5, atol=1e-6)
    gx = kernels.global_average_backward(y, x.shape)
    share = np.broadcast_to((y / np.float32(pixels))[:, :, None, None], x.shape)
    np.testing.assert_array_equal(gx, share)
    assert gx.transpose(0, 2, 3, 1).flags.c_contiguous and y.dtype == np.float32


@pytest.mark.parametrize("order", [np.asfortranarray, lambda a: np.repeat(a, 2, axis=3)[..., ::2]])
def test_results_do_not_depend_on_strides(order) -> None:
    window = Window(3, 2, 2, 1, 1, 0)
    x = random((3, 5, 7, 6), 0)
    y = kernels.max_pooling_forward(x, window)
    for name, arrays in {
        "max_pooling_forward": (x,),
        "max_pooling_backward": (x, y, random(y.shape, 1)),
        "average_pooling_forward": (x,),
    }.items():
        compute = getattr(kernels, name)
        np.testing.assert_array_equal(
            compute(*map(order, arrays), window), compute(*arrays, window)
        )
    np.testing.assert_array_equal(
        kernels.average_pooling_backward(order(y), x.shape, window),
        kernels.average_pooling_backward(y, x.shape, window),
    )
    np.testing.assert_array_equal(
        kernels.global_average_forward(order(x)), kernels.global_average_forward(x)
    )


def test_wrong_arguments_are_named() -> None:
    x = random((2, 3, 4, 4), 0)
    window = Window(2, 2, 2, 2)
    with pytest.raises(KernelError, match=r"gy must have the shape \(2, 3, 2, 2\)"):
        kernels.max_pooling_backward(x, x[:, :, ::2, ::2], x, window)
    with pytest.raises(KernelError, match="smaller than the window"):
        kernels.max_pooling_forward(x, Window(5, 5))
    with pytest.raises(KernelError, match="does not support dilation"):
        kernels.average_pooling_forward(x, Window(2, 2, dy=2))
