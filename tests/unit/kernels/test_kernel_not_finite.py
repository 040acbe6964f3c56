"""Results are NaN or infinite exactly where NumPy's are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.kernels.batch_statistics import RunningStatistics
from edgeddl.kernels.matrices import Matrices, Products
from edgeddl.kernels.segments import SEGMENT
from edgeddl.kernels.window import Window
from tests.unit.kernels.implementations import Implementation, by_reference
from tests.unit.kernels.layers import SAME, Layer, compute, random, three_passes

EPS = 2e-5
# Values that are put into an array, one after another.
BAD = {
    "NaN": [np.nan],
    "infinity": [np.inf],
    "minus infinity": [-np.inf],
    "both infinities": [np.inf, -np.inf],
}
by_bad = pytest.mark.parametrize("bad", BAD)

LAYERS = [
    Layer((2, 9, 13, 14), 10, SAME),
    Layer((1, 130, 9, 13), 140, SAME),
    Layer((2, 9, 13, 14), 10, Window(5, 5, ph=2, pw=2)),
    Layer((2, 5, 13, 14), 6, Window(3, 3, 2, 2, 1, 1)),
    Layer((2, 6, 13, 14), 4, Window(3, 3, ph=1, pw=1, dy=2, dx=2), 2),
    Layer((2, 9, 13, 14), 9, SAME, 9),
]


def spoil(array: np.ndarray, values: list[float], middle: bool = False) -> np.ndarray:
    """Put these values at random places; with `middle`, away from the edges of images."""
    spoilt = array.copy()
    inner = spoilt[:, :, 2:-2, 2:-2] if middle else spoilt
    places = np.random.default_rng(0).permutation(inner.size)[: len(values)]
    inner[np.unravel_index(places, inner.shape)] = values
    return spoilt


def kinds(array: np.ndarray) -> np.ndarray:
    """0 where finite, 2 where NaN, otherwise the sign of infinity."""
    infinite = np.where(np.isinf(array), np.sign(array), 0)
    return np.where(np.isnan(array), 2, np.nan_to_num(infinite))


def assert_alike(found: np.ndarray | float, expected: np.ndarray | float) -> None:
    np.testing.assert_array_equal(kinds(np.asarray(found)), kinds(np.asarray(expected)))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(
        np.asarray(found)[finite], np.asarray(expected)[finite], rtol=1e-4, atol=1e-4
    )


@by_bad
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_convolution(native: Implementation, layer: Layer, bad: str) -> None:
    x, W, gy = layer.arrays()
    x, gy = spoil(x, BAD[bad]), spoil(gy, BAD[bad], middle=True)
    found = three_passes(layer, x, W, gy)
    for one, other in zip(found, by_reference(three_passes, layer, x, W, gy), strict=True):
        assert kinds(other).any()
        assert_alike(one, other)


@by_bad
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_convolution_with_bad_weights(native: Implementation, layer: Layer, bad: str) -> None:
    """Away from the edges: a weight times padding is NaN or 0, depending on the algorithm."""
    x, W, gy = layer.arrays()
    W = spoil(W, BAD[bad])
    for name in ("forward", "input gradient"):
        found = compute(layer, name, x, W, gy)[:, :, 3:-3, 3:-3]
        expected = by_reference(compute, layer, name, x, W, gy)[:, :, 3:-3, 3:-3]
        assert kinds(expected).any()
        assert_alike(found, expected)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_large_numbers_overflow_only_where_their_sum_does(
    native: Implementation, layer: Layer
) -> None:
    """Winograd's algorithm multiplies inputs by up to 6 before it detects an overflow."""
    x, W, gy = layer.arrays()
    x[0, 1, 6, 6] = gy[0, 1, 3, 3] = 1e38
    W, x[0, 1, 5, 5], gy[0, 1, 2, 3] = W / 8, -1e38, -1e38
    x, gy = np.clip(x, -1e38, 1e38), np.clip(gy / 8, -1e37, 1e37)
    for one, other in zip(
        three_passes(layer, x, W, gy), by_reference(three_passes, layer, x, W, gy), strict=True
    ):
        np.testing.assert_array_equal(kinds(one), kinds(other))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("where", ["x", "gy", "gamma"])
def test_normalization(native: Implementation, where: str, relu: bool) -> None:
    for values in BAD.values():
        arrays = {"x": random((3, 19, 7, 5), 0), "gy": random((3, 19, 7, 5), 1)}
        arrays |= {"gamma": random((19,), 2), "beta": random((19,), 3)}
        arrays[where] = spoil(arrays[where], values)
        found = normalization_passes(relu=relu, **arrays)
        expected = by_reference(normalization_passes, relu=relu, **arrays)
        assert any(kinds(array).any() for array in expected)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(kinds(one), kinds(other))


def normalization_passes(
    x: np.ndarray, gy: np.ndarray, gamma: np.ndarray, beta: np.ndarray, relu: bool
) -> list[np.ndarray]:
    running = RunningStatistics(np.zeros_like(gamma), np.ones_like(gamma), 0.9)
    y, statistics = kernels.batch_normalization_forward(
        x, gamma, beta, None, EPS, relu, running=running
    )
    known = (gamma, beta, statistics, EPS)
    found = kernels.batch_normalization_backward(x, gy, *known, relu)
    z, _ = kernels.batch_normalization_forward(x, *known, residual=gy)
    with_residual = kernels.batch_normalization_backward(x, gy, *known, y=z)
    assert with_residual.residual is not None
    return [y, *statistics, *running[:2], *found[:3], z, *with_residual[:3], with_residual.residual]


WINDOW = Window(3, 2, 2, 1, 1, 0)
SHAPE = (3, 19, 7, 6)
SIMPLE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "relu_forward": lambda x, y: kernels.relu_forward(x),
    "relu_backward": lambda x, y: kernels.relu_backward(y, x),
    "relu_backward of a bad y": lambda x, y: kernels.relu_backward(x, y),
    "add": lambda x, y: kernels.add(x, y),
    "channel_sums": lambda x, y: kernels.channel_sums(x),
    "max_pooling_forward": lambda x, y: kernels.max_pooling_forward(x, WINDOW),
    "max_pooling_backward": lambda x, y: kernels.max_pooling_backward(
        x, kernels.max_pooling_forward(x, WINDOW), y[:, :, :4, :5], WINDOW
    ),
    "average_pooling_forward": lambda x, y: kernels.average_pooling_forward(x, WINDOW),
    "average_pooling_backward": lambda x, y: kernels.average_pooling_backward(
        x[:, :, :4, :5], SHAPE, WINDOW
    ),
    "global_average_forward": lambda x, y: kernels.global_average_forward(x),
    "global_average_backward": lambda x, y: kernels.global_average_backward(x[:, :, 0, 0], SHAPE),
    "linear_forward": lambda x, y: kernels.linear_forward(x[:, :, 0, 0], y[0, :, :4, 0].T, None),
    "linear_input_gradient": lambda x, y: kernels.linear_input_gradient(
        x[:, :4, 0, 0], y[:4, :, 0, 0].repeat(2, axis=0)[:4]
    ),
    "linear_weight_gradient": lambda x, y: kernels.linear_weight_gradient(
        x[:, :, 0, 0], y[:, :4, 0, 0]
    ),
    "softmax": lambda x, y: kernels.softmax_cross_entropy(
        x[:, :, 0, 0], np.array([1, 18, -1], np.int32)
    )[1],
    "smooth softmax": lambda x, y: np.float32(
        kernels.softmax_cross_entropy(x[:, :, 0, 0], np.array([1, 18, -1], np.int32), 0.1)[0]
    ),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_other_kernels(native: Implementation, name: str) -> None:
    for values in BAD.values():
        x, y = random(SHAPE, 0), random(SHAPE, 1)
        x[0, [3, 7, 11], 0, 0] = np.resize(values, 3)
        x[1, 5, 3, [1, 2, 3]] = np.resize(values, 3)
        assert_alike(SIMPLE[name](x, y), by_reference(SIMPLE[name], x, y))


def test_max_pooling_adds_a_bad_gradient_only_to_the_largest_pixel(
    implementation: Implementation,
) -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    for bad in (np.nan, np.inf):
        gy = np.array([[bad, 1], [2, 3]], np.float32).reshape(1, 1, 2, 2)
        gx = kernels.max_pooling_backward(x, x[:, :, 1::2, 1::2], gy, Window(2, 2, 2, 2))
        expected = np.zeros_like(x)
        expected[:, :, 1::2, 1::2] = gy
        np.testing.assert_array_equal(gx, expected)


@by_bad
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_momentum_sgd_of_products(native: Implementation, weight_decay: float, bad: str) -> None:
    m = Matrices(2, 40, [(0, 4, 10)])
    lefts, rights, arrays = random((8,), 1), random((20,), 2), random((2, 40), 0)
    lefts[3], rights[7], arrays[0, 25], arrays[1, 36] = np.resize(BAD[bad], 4)
    expected, decays = arrays.copy(), np.array([weight_decay])
    products = Products(0, m, lefts, rights)
    for (p, v), update in (
        (arrays, kernels.momentum_sgd_of_products),
        (expected, partial(by_reference, kernels.momentum_sgd_of_products)),
    ):
        update(p, products, v, decays, 0.1, 0.9, True)
    np.testing.assert_array_equal(kinds(arrays), kinds(expected))


@by_bad
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_momentum_sgd(native: Implementation, weight_decay: float, bad: str) -> None:
    arrays = random((3, 40), 0)
    for row, array in enumerate(arrays):
        array[7 * row : 7 * row + 3] = np.resize(BAD[bad], 3)
    expected = arrays.copy()
    segments = np.array([(0, 40, weight_decay)], SEGMENT)
    kernels.momentum_sgd(*arrays, segments, 0.1, 0.9, True)
    by_reference(kernels.momentum_sgd, *expected, segments, 0.1, 0.9, True)
    np.testing.assert_array_equal(kinds(arrays), kinds(expected))
