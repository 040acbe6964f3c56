"""Convolution kernels against float64, on every layer of the models and on unusual shapes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.kernels import layout
from edgeddl.kernels.batch_statistics import FoldedNormalization
from edgeddl.kernels.window import Window
from tests.unit.kernels.implementations import Implementation
from tests.unit.kernels.layers import (
    LAYERS,
    MODEL_LAYERS,
    ODD_LAYERS,
    PASSES,
    SAME,
    Layer,
    assert_right,
    compute,
    exact_and_limit,
    exact_and_limit_of,
    random,
    three_passes,
)

pytestmark = pytest.mark.usefixtures("implementation")

# a product of several hundred channels takes seconds in an emulator
EACH_LAYER = [
    pytest.param(layer, marks=[pytest.mark.large] if layer in MODEL_LAYERS else [], id=str(layer))
    for layer in dict.fromkeys(LAYERS)
]


@pytest.mark.parametrize("layer", EACH_LAYER)
def test_results_match_float64(implementation: Implementation, layer: Layer) -> None:
    arrays = layer.arrays()
    for name in PASSES:
        exact, limit = exact_and_limit_of(layer, name)
        found = compute(layer, name, *arrays)
        assert_right(layer, name, found, exact, limit, implementation.is_native)
        in_memory = found.transpose((2, 3, 1, 0) if name == "weight gradient" else (0, 2, 3, 1))
        assert in_memory.flags.c_contiguous, name


@pytest.mark.parametrize("layer", [layer for layer in ODD_LAYERS if layer.shape[0]], ids=str)
def test_gradients_match_the_forward_pass(layer: Layer) -> None:
    """y is linear in x and W: <y, gy> = <x, gx> = <W, gW>, a finite difference of any size."""
    x, W, gy = layer.arrays()
    y, gW, gx = three_passes(layer, x, W, gy)
    terms = [np.multiply(*pair, dtype=np.float64) for pair in ((y, gy), (W, gW), (x, gx))]
    slack = 1e-5 * max(np.sqrt(np.sum(term**2)) for term in terms)
    for term in terms[1:]:
        assert abs(term.sum() - terms[0].sum()) <= slack


BIASED = [
    Layer((2, 3, 5, 5), 4, Window(3, 3)),
    Layer((2, 17, 9, 9), 18, SAME),
    Layer((2, 130, 8, 9), 135, SAME),
    Layer((2, 17, 9, 9), 18, Window(5, 5, ph=2, pw=2)),
    Layer((2, 17, 9, 9), 17, SAME, 17),
    Layer((2, 6, 9, 9), 4, Window(3, 3, 2, 2), 2),
]


@pytest.mark.parametrize("layer", BIASED, ids=str)
def test_bias_is_added_to_every_pixel(layer: Layer) -> None:
    x, W, _ = layer.arrays()
    b = np.repeat(random((layer.k,), 5), 2)[::2]  # not contiguous
    plain = kernels.convolution_forward(x, W, None, layer.window, layer.groups)
    with_bias = kernels.convolution_forward(x, W, b, layer.window, layer.groups)
    # one rounding, before or after the sum
    np.testing.assert_allclose(with_bias, plain + b[:, None, None], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("layer", BIASED, ids=str)
def test_input_gradient_is_added_to_a_given_array(layer: Layer) -> None:
    x, W, gy = layer.arrays()
    plus = layout.channels_last(random(x.shape, 9))
    alone = kernels.convolution_input_gradient(gy, W, x.shape, layer.window, layer.groups)
    total = kernels.convolution_input_gradient(gy, W, x.shape, layer.window, layer.groups, plus)
    np.testing.assert_allclose(total, alone + plus, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("layer", BIASED, ids=str)
def test_the_input_is_normalised_and_rectified_as_it_is_read(layer: Layer) -> None:
    """The padding stays 0."""
    x, W, gy = layer.arrays()
    scale, shift = random((2, layer.shape[1]), 6)
    normalization = FoldedNormalization(scale, shift)
    prepared = np.maximum(x * scale[:, None, None] + shift[:, None, None], np.float32(0))
    magnitudes = abs(x * scale[:, None, None]) + abs(shift[:, None, None])
    where = (layer.window, layer.groups)
    found = {
        "forward": kernels.convolution_forward(x, W, None, *where, normalization=normalization),
        "weight gradient": kernels.convolution_weight_gradient(
            x, gy, *where, normalization=normalization
        ),
    }
    for name, result in found.items():
        # twice: the normalised input has rounding errors as well
        _, limit = exact_and_limit(layer, name, magnitudes, W, gy)
        exact, _ = exact_and_limit(layer, name, prepared, W, gy)
        assert (abs(result - exact) <= 2 * limit).all(), name


STRIDES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C order": np.ascontiguousarray,
    "channels last": layout.channels_last,
    "kernel order": layout.kernel_order,
    "Fortran order": np.asfortranarray,
    "every second": lambda a: np.repeat(a, 2, axis=3)[..., ::2],
    "backwards": lambda a: np.ascontiguousarray(a[::-1, :, ::-1])[::-1, :, ::-1],
    "of a larger array": lambda a: np.pad(a, 1)[1:-1, 1:-1, 1:-1, 1:-1],
}
ALGORITHMS = [
    Layer((3, 5, 7, 6), 4, Window(3, 3, 2, 1, 1, 0)),
    Layer((3, 9, 7, 6), 11, SAME),
    Layer((3, 9, 7, 6), 11, Window(5, 5, ph=2, pw=2)),
    Layer((3, 9, 7, 6), 9, SAME, 9),
    Layer((3, 6, 7, 6), 4, SAME, 2),
]


@pytest.mark.parametrize("layer", ALGORITHMS, ids=str)
def test_results_do_not_depend_on_strides(layer: Layer) -> None:
    arrays = layer.arrays()
    expected = three_passes(layer, *arrays)
    for name, order in STRIDES.items():
        for one, other in zip(three_passes(layer, *map(order, arrays)), expected, strict=True):
            np.testing.assert_array_equal(one, other, name)


def test_read_only_arguments_are_accepted() -> None:
    layer = ALGORITHMS[0]
    arrays = layer.arrays()
    expected = three_passes(layer, *arrays)
    for array in arrays:
        array.flags.writeable = False
    for one, other in zip(three_passes(layer, *arrays), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("layer", ALGORITHMS, ids=str)
def test_weight_gradient_is_written_only_to_out(layer: Layer) -> None:
    x, W, gy = layer.arrays()
    where = (layer.window, layer.groups)
    expected = kernels.convolution_weight_gradient(x, gy, *where)
    for name, order in STRIDES.items():
        out = order(np.full_like(W, np.nan))
        around = out if out.base is None else out.base
        before = around.copy()
        assert kernels.convolution_weight_gradient(x, gy, *where, out=out) is out
        np.testing.assert_array_equal(out, expected, name)
        out[...] = np.nan
        np.testing.assert_array_equal(around, before, name)


# Native kernels write directly to a segment of a gradient bucket, which is in kernel order.
@pytest.mark.parametrize("layer", [*ALGORITHMS, Layer((2, 130, 9, 9), 133, SAME)], ids=str)
def test_weight_gradient_stays_within_its_segment(layer: Layer) -> None:
    x, W, gy = layer.arrays()
    margin = 67
    flat = np.full(W.size + 2 * margin, 7, np.float32)
    k, c, kh, kw = W.shape
    view = flat[margin:-margin].reshape(kh, kw, c, k).transpose(3, 2, 0, 1)
    kernels.convolution_weight_gradient(x, gy, layer.window, layer.groups, out=view)
    assert (flat[:margin] == 7).all() and (flat[-margin:] == 7).all()
    expected = kernels.convolution_weight_gradient(x, gy, layer.window, layer.groups)
    np.testing.assert_array_equal(view, expected)


@pytest.mark.parametrize("layer", ALGORITHMS, ids=str)
def test_arguments_are_not_modified(layer: Layer) -> None:
    x, W, gy = (STRIDES["channels last"](array) for array in layer.arrays())
    W = layout.kernel_order(W)
    three_passes(layer, x, W, gy)
    for array, expected in zip((x, W, gy), layer.arrays(), strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.large
@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("stride", [1, 2])
def test_memory_for_windows_is_bounded(name: str, stride: int) -> None:
    """All windows of these batches take 75 MB. A pass may use its result and 16 MiB more.

    Scattering gradients takes the result twice, with and without padding.
    """
    layer = Layer((32, 64 * stride**2, 32, 32), 16, Window(3, 3, stride, stride, 1, 1))
    x = layout.channels_last(np.zeros(layer.shape, np.float32))
    W = layout.kernel_order(np.zeros((16, x.shape[1], 3, 3), np.float32))
    gy = layout.channels_last(np.zeros((32, 16, 32 // stride, 32 // stride), np.float32))
    tracemalloc.start()
    try:
        result = compute(layer, name, x, W, gy)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * result.nbytes + (16 << 20)
