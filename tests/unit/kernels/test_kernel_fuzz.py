"""Kernels on random shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeddl import kernels
from edgeddl.kernels import layout
from edgeddl.kernels.window import Window
from tests.unit.kernels.implementations import Implementation, by_reference
from tests.unit.kernels.layers import (
    PASSES,
    Layer,
    assert_right,
    compute,
    exact_and_limit,
    random,
)

fuzzed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ORDERS: list[Callable[[np.ndarray], np.ndarray]] = [
    np.ascontiguousarray,
    np.asfortranarray,
    layout.channels_last,
    lambda a: np.repeat(a, 2, axis=2)[:, :, ::2],
]


@st.composite
def windows(draw: st.DrawFn, h: int, w: int, dilated: bool) -> Window:
    """A window that fits into h x w pixels at least once."""
    (kh, dy, ph), (kw, dx, pw) = (draw(_along(size, dilated)) for size in (h, w))
    sy, sx = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    cover_all = not dilated and draw(st.booleans())
    return Window(kh, kw, sy, sx, ph, pw, cover_all, dy=dy, dx=dx)


@st.composite
def _along(draw: st.DrawFn, size: int, dilated: bool) -> tuple[int, int, int]:
    """Window, dilation and padding along one axis."""
    k = draw(st.integers(1, 5))
    dilation = draw(st.integers(1, 3)) if dilated else 1
    least = max(0, -(-((k - 1) * dilation + 1 - size) // 2))
    return (
        k,
        dilation,
        draw(st.integers(least, least + 3) if dilated else st.just(min(least, k - 1))),
    )


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    n, h, w = draw(st.integers(0, 4)), draw(st.integers(1, 14)), draw(st.integers(1, 14))
    kind = draw(st.sampled_from(["plain", "winograd", "groups", "depthwise"]))
    c, k = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    window = draw(windows(h, w, dilated=True))
    if kind == "winograd":
        taps = draw(st.sampled_from([3, 5]))
        h, w = max(h, taps), max(w, taps)
        stride_1 = Window(taps, taps, ph=min(window.ph, taps), pw=min(window.pw, taps))
        window = draw(st.sampled_from([stride_1, Window(3, 3, 2, 2, 1, 1)]))
        return Layer((n, c + 7, h, w), k + 7, window)
    if kind == "depthwise":
        return Layer((n, c, h, w), c, window, c)
    groups = draw(st.integers(2, 4)) if kind == "groups" else 1
    return Layer((n, c * groups, h, w), k * groups, window, groups)


@fuzzed
@given(layers(), st.sampled_from(ORDERS))
def test_convolution(
    implementation: Implementation, layer: Layer, order: Callable[[np.ndarray], np.ndarray]
) -> None:
    arrays = layer.arrays()
    for name in PASSES:
        exact, limit = exact_and_limit(layer, name, *arrays)
        found = compute(layer, name, *map(order, arrays))
        assert_right(layer, name, found, exact, limit, implementation.is_native)


shapes = st.tuples(*(st.integers(*sizes) for sizes in ((0, 4), (1, 40), (1, 12), (1, 12))))


@fuzzed
@given(st.data(), shapes, st.sampled_from(ORDERS))
def test_pooling(native: Implementation, data: st.DataObject, shape: tuple, order) -> None:
    """Equal to the reference, which has its own tests. Sums of whole numbers are exact."""
    window = data.draw(windows(*shape[2:], dilated=False))
    x = order(np.round(4 * random(shape, 0)))
    gy = order(np.round(8 * random((*shape[:2], *window.output_size(*shape[2:])), 1)))
    found, expected = pool(x, gy, window), by_reference(pool, x, gy, window)
    for one, other in zip(found[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(found[3], expected[3], rtol=1e-5, atol=1e-5)


def pool(x: np.ndarray, gy: np.ndarray, window: Window) -> list[np.ndarray]:
    y = kernels.max_pooling_forward(x, window)
    return [
        y,
        kernels.max_pooling_backward(x, y, gy, window),
        kernels.average_pooling_forward(x, window),
        kernels.average_pooling_backward(gy, x.shape, window),
    ]


@fuzzed
@given(
    shapes.filter(lambda shape: shape[0] > 0), st.sampled_from(ORDERS), st.booleans(), st.booleans()
)
def test_normalization(
    native: Implementation, shape: tuple, order, relu: bool, fixed: bool
) -> None:
    x, gy, residual = (order(random(shape, seed)) for seed in range(3))
    gamma, beta = random((2, shape[1]), 3)
    forward = (x, gamma, beta, None, 1e-3, relu, residual if relu else None)
    y, statistics = kernels.batch_normalization_forward(*forward)
    expected_y, expected_statistics = by_reference(kernels.batch_normalization_forward, *forward)
    assert_close([y, *statistics], [expected_y, *expected_statistics], 1e-4)
    known = (gamma, beta, statistics, 1e-3)
    backward = partial(
        kernels.batch_normalization_backward, x, gy, *known, y=y if relu else None, fixed=fixed
    )
    found, expected = backward(), by_reference(backward)
    assert_close([found.x], [expected.x], 2e-4)
    assert_close(found[1:3], expected[1:3], 1e-3)
    np.testing.assert_array_equal(found.residual, expected.residual)


def assert_close(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], slack: float) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=slack)
