"""Convolution kernels against float64, on every layer of the models and on odd shapes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels import layout
from edgeddl.kernels.reference import columns
from edgeddl.kernels.window import Window
from tests.unit.kernels import oracles

# (N, C, H, W), K, window
MODEL_LAYERS = [
    ((2, 3, 32, 32), 64, Window(3, 3, ph=1, pw=1)),
    ((2, 3, 32, 32), 64, Window(7, 7, 2, 2, 3, 3)),
    ((2, 32, 32, 32), 64, Window(3, 3, ph=1, pw=1)),
    ((2, 64, 32, 32), 64, Window(3, 3, ph=1, pw=1)),
    ((2, 64, 32, 32), 128, Window(3, 3, 2, 2, 1, 1)),
    ((2, 64, 32, 32), 128, Window(1, 1, 2, 2)),
    ((2, 128, 16, 16), 128, Window(3, 3, ph=1, pw=1)),
    ((2, 128, 16, 16), 256, Window(3, 3, 2, 2, 1, 1)),
    ((2, 256, 8, 8), 512, Window(1, 1, 2, 2)),
    ((2, 256, 8, 8), 256, Window(3, 3, ph=1, pw=1)),
    ((2, 512, 4, 4), 512, Window(3, 3, ph=1, pw=1)),
    ((2, 512, 1, 1), 512, Window(3, 3, ph=1, pw=1)),
]

ODD_LAYERS = [
    ((1, 1, 1, 1), 1, Window(1, 1)),
    ((1, 1, 1, 1), 1, Window(3, 3, ph=1, pw=1)),
    ((3, 5, 7, 7), 17, Window(3, 3, ph=1, pw=1)),
    ((3, 17, 7, 2), 5, Window(3, 2, ph=1, pw=1)),
    ((2, 5, 7, 7), 3, Window(3, 3, 3, 3, 1, 1)),
    ((2, 3, 7, 9), 17, Window(5, 1, 2, 3, 2, 0)),
    ((2, 3, 9, 7), 2, Window(2, 4, 1, 2, 0, 3)),
    ((2, 5, 4, 4), 3, Window(2, 2, 3, 3)),  # the stride skips pixels
    ((2, 4, 3, 3), 3, Window(2, 2, ph=2, pw=3)),  # windows entirely in the padding
    ((2, 40, 5, 5), 2, Window(3, 3)),
    ((2, 2, 5, 5), 40, Window(3, 3, ph=1, pw=1)),
    ((4, 6, 5, 5), 7, Window(1, 1)),
]
LAYERS = MODEL_LAYERS + ODD_LAYERS


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def make_layer(shape: tuple, k: int, window: Window) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, W and gy of a layer."""
    x, W = random(shape, 1), random((k, shape[1], window.kh, window.kw), 2)
    return x, W, random((shape[0], k, *window.output_size(*shape[2:])), 3)


def assert_within(found: np.ndarray, exact: np.ndarray, limit: np.ndarray) -> None:
    assert found.shape == exact.shape and found.dtype == np.float32
    excess = np.abs(found - exact) / limit
    assert excess.max() <= 1, f"{(excess > 1).sum()} of {excess.size}, up to {excess.max()} limits"


@pytest.mark.parametrize(("shape", "k", "window"), LAYERS)
def test_forward(shape: tuple, k: int, window: Window) -> None:
    x, W, _ = make_layer(shape, k, window)
    limit = oracles.sum_limit(W[0].size, oracles.convolution(abs(x), abs(W), window))
    y = kernels.convolution_forward(x, W, None, window)
    assert_within(y, oracles.convolution(x, W, window), limit)
    assert y.transpose(0, 2, 3, 1).flags.c_contiguous


@pytest.mark.parametrize(("shape", "k", "window"), LAYERS)
def test_weight_gradient(shape: tuple, k: int, window: Window) -> None:
    x, _, gy = make_layer(shape, k, window)
    length = gy[:, 0].size
    limit = oracles.sum_limit(length, oracles.weight_gradient(abs(x), abs(gy), window))
    gW = kernels.convolution_weight_gradient(x, gy, window)
    assert_within(gW, oracles.weight_gradient(x, gy, window), limit)
    assert gW.transpose(2, 3, 1, 0).flags.c_contiguous


@pytest.mark.parametrize(("shape", "k", "window"), LAYERS)
def test_input_gradient(shape: tuple, k: int, window: Window) -> None:
    _, W, gy = make_layer(shape, k, window)
    length = k * window.kh * window.kw
    limit = oracles.sum_limit(length, oracles.input_gradient(abs(gy), abs(W), shape, window))
    gx = kernels.convolution_input_gradient(gy, W, shape, window)
    assert_within(gx, oracles.input_gradient(gy, W, shape, window), limit)
    assert gx.transpose(0, 2, 3, 1).flags.c_contiguous


def test_bias_is_added_to_every_pixel() -> None:
    x, W, _ = make_layer((2, 3, 5, 5), 4, Window(3, 3))
    b = random((4,), 5)
    plain = kernels.convolution_forward(x, W, None, Window(3, 3))
    with_bias = kernels.convolution_forward(x, W, b, Window(3, 3))
    np.testing.assert_array_equal(with_bias, plain + b[:, None, None])


STRIDES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C order": np.ascontiguousarray,
    "channels last": lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "kernel order": layout.kernel_order,
    "Fortran order": np.asfortranarray,
    "every second": lambda a: np.repeat(a, 2, axis=3)[..., ::2],
    "backwards": lambda a: np.ascontiguousarray(a[::-1, :, ::-1])[::-1, :, ::-1],
}


@pytest.mark.parametrize("order", STRIDES)
def test_strides_do_not_matter(order: str) -> None:
    window = Window(3, 3, 2, 1, 1, 0)
    arrays = make_layer((3, 5, 7, 6), 4, window)
    x, W, gy = (STRIDES[order](array) for array in arrays)
    for found, expected in zip(
        three_passes(x, W, gy, window), three_passes(*arrays, window), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def three_passes(
    x: np.ndarray, W: np.ndarray, gy: np.ndarray, window: Window
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        kernels.convolution_forward(x, W, None, window),
        kernels.convolution_weight_gradient(x, gy, window),
        kernels.convolution_input_gradient(gy, W, x.shape, window),
    )


@pytest.mark.parametrize("order", STRIDES)
def test_weight_gradient_is_written_to_out(order: str) -> None:
    window = Window(3, 3, ph=1, pw=1)
    x, W, gy = make_layer((3, 5, 7, 6), 4, window)
    out = STRIDES[order](np.full_like(W, np.nan))
    assert kernels.convolution_weight_gradient(x, gy, window, out=out) is out
    np.testing.assert_array_equal(out, kernels.convolution_weight_gradient(x, gy, window))


def test_weight_gradient_writes_nothing_but_out() -> None:
    window = Window(3, 3, ph=1, pw=1)
    x, W, gy = make_layer((3, 5, 7, 6), 4, window)
    flat = np.full(W.size + 20, np.nan, np.float32)
    view = flat[10 : 10 + W.size].reshape(3, 3, 5, 4).transpose(3, 2, 0, 1)
    kernels.convolution_weight_gradient(x, gy, window, out=view)
    assert np.isnan(flat[:10]).all() and np.isnan(flat[-10:]).all()
    np.testing.assert_array_equal(view, kernels.convolution_weight_gradient(x, gy, window))


@pytest.mark.parametrize("stride", [1, 2])
def test_result_hardly_depends_on_the_column_buffer(monkeypatch, stride: int) -> None:
    window = Window(3, 3, stride, stride, 1, 1)
    x, W, gy = make_layer((7, 5, 8, 8), 6, window)
    whole = three_passes(x, W, gy, window)
    monkeypatch.setattr(columns, "COLUMN_BYTES", 3 * gy[0, 0].size * W[0].size * 4)
    parts = three_passes(x, W, gy, window)
    again = three_passes(x, W, gy, window)
    limit = oracles.sum_limit(gy[:, 0].size, oracles.weight_gradient(abs(x), abs(gy), window))
    assert_within(parts[1], whole[1].astype(np.float64), 2 * limit)
    for index in (0, 2):
        np.testing.assert_allclose(parts[index], whole[index], rtol=1e-5, atol=1e-5)
    for first, second in zip(parts, again, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32])
@pytest.mark.parametrize("bytes_each", [1, columns.COLUMN_BYTES // 3, 5 * columns.COLUMN_BYTES])
def test_split_images(count: int, bytes_each: int) -> None:
    parts = columns.split_images(count, bytes_each)
    sizes = [part.stop - part.start for part in parts]
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(count))
    assert all(size * bytes_each <= columns.COLUMN_BYTES or size == 1 for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1


PASSES: dict[str, Callable[..., np.ndarray]] = {
    "forward": lambda x, W, gy, window: kernels.convolution_forward(x, W, None, window),
    "weight gradient": lambda x, W, gy, window: kernels.convolution_weight_gradient(x, gy, window),
    "input gradient": lambda x, W, gy, window: kernels.convolution_input_gradient(
        gy, W, x.shape, window
    ),
}


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("stride", [1, 2])
def test_memory_for_windows_is_bounded(name: str, stride: int) -> None:
    """All windows of these batches take 75 MB: a pass may have its result and 16 MiB more.

    Spreading gradients takes the result twice, with padding and without.
    """
    window = Window(3, 3, stride, stride, 1, 1)
    x = layout.channels_last(np.zeros((32, 64 * stride**2, 32, 32), np.float32))
    W = layout.kernel_order(np.zeros((16, x.shape[1], 3, 3), np.float32))
    gy = layout.channels_last(np.zeros((32, 16, 32 // stride, 32 // stride), np.float32))
    tracemalloc.start()
    try:
        result = PASSES[name](x, W, gy, window)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * result.nbytes + (16 << 20)


def test_an_empty_batch_has_no_gradient() -> None:
    window = Window(3, 3, ph=1, pw=1)
    x, W, gy = make_layer((0, 3, 5, 5), 4, window)
    y, gW, gx = three_passes(x, W, gy, window)
    assert y.shape == (0, 4, 5, 5) and gx.shape == x.shape
    np.testing.assert_array_equal(gW, np.zeros_like(W))


def test_wrong_arguments_are_named() -> None:
    window = Window(3, 3)
    x, W, gy = make_layer((2, 3, 5, 5), 4, window)
    with pytest.raises(KernelError, match=r"W must have the shape \(any, 3, 3, 3\), not \(4, 2,"):
        kernels.convolution_forward(x, W[:, :2], None, window)
    with pytest.raises(KernelError, match="x must be a NumPy array of float32, not of float64"):
        kernels.convolution_forward(x.astype(np.float64), W, None, window)
    with pytest.raises(KernelError, match=r"b must have the shape \(4\), not \(3,\)"):
        kernels.convolution_forward(x, W, np.zeros(3, np.float32), window)
    with pytest.raises(KernelError, match=r"gy must have the shape \(2, any, 3, 3\)"):
        kernels.convolution_weight_gradient(x, gy[:, :, 1:], window)
    with pytest.raises(KernelError, match=r"out must have the shape \(4, 3, 3, 3\)"):
        kernels.convolution_weight_gradient(x, gy, window, out=np.zeros_like(W[:3]))
    with pytest.raises(KernelError, match=r"gy must have the shape \(2, 4, 3, 3\)"):
        kernels.convolution_input_gradient(gy[:, :3], W, x.shape, window)
    with pytest.raises(KernelError, match="2 x 9 pixels is smaller than the window"):
        kernels.convolution_forward(x[:, :, :2, :1].repeat(9, axis=3), W, None, window)
    with pytest.raises(KernelError, match="stride must be at least 1"):
        Window(3, 3, 0, 1)
