"""Batch normalisation kernels against float64 and finite differences."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.kernels.batch_statistics import (
    BatchStatistics,
    NormalizationGradients,
    RunningStatistics,
)
from edgeddl.kernels.layout import channels_last
from edgeddl.kernels.reference import blocks
from tests.unit.kernels.implementations import Implementation, by_reference
from tests.unit.kernels.oracles import UNIT_ROUNDOFF

pytestmark = pytest.mark.usefixtures("implementation")

EPS = 2e-5
SHAPES = [
    (2, 64, 32, 32),
    (3, 17, 7, 5),
    (4, 512, 1, 1),
    (2, 1, 1, 1),
    (64, 5),
    (2, 3, 100, 70),
    (1, 30, 31, 33),
    (3, 100, 9, 9),
]


def axes(x: np.ndarray) -> tuple[int, ...]:
    return (0, 2, 3)[: x.ndim - 1]


def wide(vector: np.ndarray, x: np.ndarray) -> np.ndarray:
    return vector.reshape(-1, *(1,) * (x.ndim - 2)).astype(np.float64)


def make(shape: tuple[int, ...], offset: float = 0.5) -> tuple[np.ndarray, ...]:
    """Random x, gy, gamma and beta."""
    rng = np.random.default_rng(3)
    x, gy = rng.standard_normal((2, *shape), np.float32)
    gamma, beta = rng.standard_normal((2, shape[1]), np.float32)
    return x + np.float32(offset), gy, gamma, beta


def forward(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, **options: Any
) -> tuple[np.ndarray, BatchStatistics]:
    """y normalised with the batch's statistics, and the statistics."""
    return kernels.batch_normalization_forward(x, gamma, beta, None, EPS, **options)


def normalized(*given: Any, **options: Any) -> np.ndarray:
    """y normalised with given statistics."""
    y, _ = kernels.batch_normalization_forward(*given, **options)
    return y


def statistics_of(x: np.ndarray, running: RunningStatistics | None = None) -> BatchStatistics:
    ones = np.ones(x.shape[1], np.float32)
    _, statistics = kernels.batch_normalization_fold(x, ones, ones, None, EPS, running)
    return statistics


def exact_forward(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    x_hat = (x - x.mean(axes(x), keepdims=True)) / np.sqrt(x.var(axes(x), keepdims=True) + EPS)
    return wide(gamma, x) * x_hat + wide(beta, x)


def exact_gradients(
    x: np.ndarray, gy: np.ndarray, gamma: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, gy = x.astype(np.float64), gy.astype(np.float64)
    std = np.sqrt(x.var(axes(x), keepdims=True) + EPS)
    x_hat = (x - x.mean(axes(x), keepdims=True)) / std
    ggamma, gbeta = (gy * x_hat).sum(axes(x)), gy.sum(axes(x))
    m = x.size // x.shape[1]
    gx = wide(gamma, x) / std * (gy - wide(gbeta, x) / m - x_hat * wide(ggamma, x) / m)
    return gx, ggamma, gbeta


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [0.5, 1000.0])
def test_forward(shape: tuple[int, ...], offset: float) -> None:
    x, _, gamma, beta = make(shape, offset)
    y, (mean, var) = forward(x, gamma, beta)
    x64 = x.astype(np.float64)
    # The mean, near `offset`, has one rounding error. The variance sums squares of deviations from
    # it: unless summed in blocks, rounding errors accumulate like a random walk over all rows.
    slack = 8 * UNIT_ROUNDOFF
    walk = np.sqrt(x.size // x.shape[1]) * UNIT_ROUNDOFF
    np.testing.assert_allclose(mean, x64.mean(axes(x)), atol=slack * (offset + 1))
    np.testing.assert_allclose(
        var, x64.var(axes(x)), rtol=4 * slack + walk, atol=(slack * offset) ** 2 + 1e-12
    )
    std = np.sqrt(wide(x64.var(axes(x)), x) + EPS)
    expected = exact_forward(x, gamma, beta)
    limit = slack * ((offset + 1) / std * abs(wide(gamma, x)) + 4 * abs(expected) + 1)
    assert (abs(y - expected) <= limit).all()
    assert y.dtype == mean.dtype == var.dtype == np.float32


def assert_gradients(
    x: np.ndarray,
    g: np.ndarray,
    gamma: np.ndarray,
    var: np.ndarray,
    found: NormalizationGradients,
) -> None:
    """Check gx, ggamma and gbeta, for the gradient g of the normalised output."""
    m = x.size // x.shape[1]
    limit = 16 * UNIT_ROUNDOFF * np.sqrt(m) * max(np.sqrt(m), 8)  # random walk of m steps
    exact = exact_gradients(x, g, gamma)
    for sums, expected in zip((found.gamma, found.beta), exact[1:], strict=True):
        np.testing.assert_allclose(sums, expected, rtol=0, atol=limit)
    scale = abs(wide(gamma, x)) / np.sqrt(wide(var, x) + EPS)
    assert (abs(found.x - exact[0]) <= 64 * UNIT_ROUNDOFF * scale * 8).all()
    assert {array.dtype for array in found[:3]} == {np.dtype(np.float32)}


def assert_equal(found: NormalizationGradients, expected: NormalizationGradients) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_backward(shape: tuple[int, ...], relu: bool) -> None:
    """The zeros of the ReLU are recomputed from x: exactly where y was 0."""
    x, gy, gamma, beta = make(shape)
    y, statistics = forward(x, gamma, beta, relu=relu)
    known = (gamma, beta, statistics, EPS)
    found = kernels.batch_normalization_backward(x, gy, *known, relu)
    g = np.where(y > 0, gy, np.float32(0)) if relu else gy
    assert_gradients(x, g, gamma, statistics.var, found)
    assert found.residual is None
    assert_equal(found, kernels.batch_normalization_backward(x, g, *known))


@pytest.mark.parametrize("shape", SHAPES)
def test_backward_with_a_residual(shape: tuple[int, ...]) -> None:
    x, gy, gamma, beta = make(shape)
    residual = make(shape, -0.25)[1]
    y, statistics = forward(x, gamma, beta, residual=residual)
    known = (gamma, beta, statistics, EPS)
    found = kernels.batch_normalization_backward(x, gy, *known, y=y)
    g = np.where(y > 0, gy, np.float32(0))
    assert_gradients(x, g, gamma, statistics.var, found)
    assert_equal(found, kernels.batch_normalization_backward(x, g, *known)._replace(residual=g))


@pytest.mark.parametrize("shape", SHAPES)
def test_backward_with_given_statistics(shape: tuple[int, ...]) -> None:
    """They do not depend on x, so its gradient is that of a scale and a shift."""
    x, gy, gamma, beta = make(shape)
    mean, var = beta - 1, abs(gamma) + 1
    known = (gamma, beta, BatchStatistics(mean, var), EPS)
    y = normalized(x, *known, relu=True)
    found = kernels.batch_normalization_backward(x, gy, *known, relu=True, fixed=True)
    g = np.where(y > 0, gy, 0).astype(np.float64)
    std = np.sqrt(wide(var, x) + EPS)
    np.testing.assert_allclose(found.x, g * wide(gamma, x) / std, rtol=1e-5)
    x_hat, limit = (x - wide(mean, x)) / std, 1e-6 * x.size / x.shape[1]
    np.testing.assert_allclose(found.gamma, (g * x_hat).sum(axes(x)), rtol=1e-5, atol=limit)
    np.testing.assert_allclose(found.beta, g.sum(axes(x)), rtol=1e-5, atol=limit)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_backward_in_place_gives_the_same_results(
    shape: tuple[int, ...], residual: bool, fixed: bool
) -> None:
    x, gy, gamma, beta = make(shape)
    y, statistics = forward(x, gamma, beta, relu=True)
    options: dict[str, Any] = {"relu": True, "fixed": fixed, "y": y if residual else None}
    known = (gamma, beta, statistics, EPS)
    kept = gy.copy()
    expected = kernels.batch_normalization_backward(x, gy, *known, **options)
    np.testing.assert_array_equal(gy, kept)
    spent = channels_last(gy) if gy.ndim == 4 else gy
    found = kernels.batch_normalization_backward(
        x, spent, *known, **options, in_place=True, y_in_place=True
    )
    assert_equal(found, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_gamma_and_beta_are_written_to_given_arrays(shape: tuple[int, ...]) -> None:
    x, gy, gamma, beta = make(shape)
    known = (gamma, beta, statistics_of(x), EPS)
    outs = {"out_gamma": np.empty_like(gamma), "out_beta": np.empty_like(beta)}
    found = kernels.batch_normalization_backward(x, gy, *known, **outs)
    assert found.gamma is outs["out_gamma"] and found.beta is outs["out_beta"]
    assert_equal(found, kernels.batch_normalization_backward(x, gy, *known))


@pytest.mark.parametrize("shape", SHAPES)
def test_forward_in_place_gives_the_same_results(shape: tuple[int, ...]) -> None:
    x, residual, gamma, beta = make(shape)
    given = (x, gamma, beta, statistics_of(x), EPS, True)
    expected = normalized(*given, residual)
    spent = channels_last(residual) if residual.ndim == 4 else residual
    found = normalized(*given, spent, in_place=True)
    np.testing.assert_array_equal(found, expected)


def test_native_kernels_work_in_place_if_allowed(implementation: Implementation) -> None:
    if not implementation.is_native:
        pytest.skip("the reference does nothing in place")
    x, gy, gamma, beta = make((64, 5))
    known = (gamma, beta, statistics_of(x), EPS)
    found = kernels.batch_normalization_backward(x, gy, *known, in_place=True)
    assert np.shares_memory(found.x, gy)
    y = normalized(x, *known, residual=gy, in_place=True)
    assert np.shares_memory(y, gy)
    found = kernels.batch_normalization_backward(x, x + 1, *known, y=y, y_in_place=True)
    assert found.residual is not None and np.shares_memory(found.residual, y)


@pytest.mark.skipif(find_spec("chainer") is None, reason="needs Chainer")
@pytest.mark.filterwarnings("ignore:A batch with no more than one sample")
@pytest.mark.parametrize("shape", [*SHAPES, (1, 6)])
def test_running_statistics_equal_chainers(shape: tuple[int, ...]) -> None:
    """Moving averages, with the unbiased variance. Updating them does not change the results."""
    from edgeddl.chainer_compat import F

    x = make(shape)[0]
    running, stock = (RunningStatistics(*make(shape)[2:], 0.75) for _ in range(2))
    statistics = statistics_of(x)
    for _ in range(2):
        found = statistics_of(x, running)
        F.batch_normalization(
            x, *statistics, running_mean=stock.mean, running_var=stock.var, decay=stock.decay
        )
    np.testing.assert_array_equal(found, statistics)
    np.testing.assert_allclose(running.mean, stock.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(running.var, stock.var, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 5, 2, 4), (7, 3)])
def test_gradients_match_finite_differences(shape: tuple[int, ...]) -> None:
    x, gy, gamma, beta = make(shape)
    known = (gamma, beta, statistics_of(x), EPS)
    found = kernels.batch_normalization_backward(x, gy, *known)
    arguments = [array.astype(np.float64) for array in (x, gamma, beta)]
    for argument, gradient in enumerate((found.x, found.gamma, found.beta)):
        for index in np.ndindex(gradient.shape):
            up, down = ([a.copy() for a in arguments] for _ in range(2))
            up[argument][index] += 1e-5
            down[argument][index] -= 1e-5
            slope = np.sum(gy * (exact_forward(*up) - exact_forward(*down))) / 2e-5
            assert gradient[index] == pytest.approx(slope, rel=1e-4, abs=2e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_kernels_equal_separate_ones(shape: tuple[int, ...]) -> None:
    x, residual, gamma, beta = make(shape)
    given = (x, gamma, beta, statistics_of(x), EPS)
    plain = normalized(*given)
    rectified = normalized(*given, True)
    np.testing.assert_array_equal(rectified, np.maximum(plain, 0))
    total = normalized(*given, residual=residual)
    # a fused multiply-add rounds once less
    np.testing.assert_allclose(total, np.maximum(plain + residual, 0), rtol=1e-5, atol=1e-5)
    again = normalized(*given, True, residual)
    np.testing.assert_array_equal(again, total)


def test_forward_uses_given_statistics() -> None:
    x, _, gamma, beta = make((2, 3, 4, 4))
    mean, var = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    y = normalized(x, gamma, beta, BatchStatistics(mean, var), EPS)
    scale = wide(gamma, x) / np.sqrt(wide(var, x) + EPS)
    np.testing.assert_allclose(y, scale * (x - wide(mean, x)) + wide(beta, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_computed_and_given_statistics_give_the_same_results(shape: tuple[int, ...]) -> None:
    """Bit for bit, forward and for a convolution. Both update the running statistics."""
    x, residual, gamma, beta = make(shape)
    found, of_folded = (RunningStatistics(*make(shape)[2:], 0.75) for _ in range(2))
    y, statistics = forward(x, gamma, beta, residual=residual, running=found)
    known = (x, gamma, beta, statistics, EPS)
    np.testing.assert_array_equal(y, normalized(*known, residual=residual))
    folded, again = kernels.batch_normalization_fold(x, gamma, beta, None, EPS, of_folded)
    np.testing.assert_array_equal(again, statistics)
    np.testing.assert_array_equal(folded, kernels.batch_normalization_fold(*known)[0])
    np.testing.assert_array_equal(of_folded[:2], found[:2])


@pytest.mark.parametrize("order", [np.asarray, lambda a: np.repeat(a, 2)[::2]])
@pytest.mark.parametrize("offset", [0.5, 1000.0])
def test_scale_and_shift_equal_the_reference(offset: float, order) -> None:
    """A convolution that normalises its input then equals a separate normalisation."""
    x, _, gamma, beta = make((3, 17, 7, 5), offset)
    vectors = map(order, (gamma, beta, *statistics_of(x)))
    given = (x, next(vectors), next(vectors), BatchStatistics(*vectors), EPS)
    found, _ = kernels.batch_normalization_fold(*given)
    expected, _ = by_reference(kernels.batch_normalization_fold, *given)
    np.testing.assert_array_equal(found, expected)
    y = normalized(*given)
    np.testing.assert_allclose(
        x * wide(found.scale, x) + wide(found.shift, x), y, rtol=1e-5, atol=1e-6 * offset
    )


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # no rows: 0 / 0
def test_an_empty_batch_is_accepted_and_has_zero_gradients() -> None:
    x, gy, gamma, beta = (array[:0] if array.ndim > 1 else array for array in make((2, 3, 4, 4)))
    known = (gamma, beta, BatchStatistics(beta, abs(gamma)), EPS)
    assert normalized(x, *known, True).shape == x.shape
    found = kernels.batch_normalization_backward(x, gy, *known, True)
    assert not np.any([found.gamma, found.beta])
    assert found.x.shape == x.shape


def test_the_reference_does_not_depend_on_its_block_size(monkeypatch) -> None:
    x, gy, gamma, beta = make((5, 7, 9, 11))
    whole = by_reference(all_passes, x, gy, gamma, beta)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 7 * 4 * 13)
    parts = by_reference(all_passes, x, gy, gamma, beta)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)
    sums = by_reference(kernels.channel_sums, gy)
    np.testing.assert_allclose(sums, gy.sum((0, 2, 3)), rtol=1e-4, atol=1e-4)


ORDERS = [np.asfortranarray, lambda a: np.repeat(a, 2, axis=-1)[..., ::2], lambda a: a[::-1][::-1]]


@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (6, 5)])
@pytest.mark.parametrize("order", ORDERS)
def test_results_do_not_depend_on_strides(order, shape: tuple[int, ...]) -> None:
    arrays = make(shape)
    for one, other in zip(all_passes(*arrays), all_passes(*map(order, arrays)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.ndim != 4 or one.transpose(0, 2, 3, 1).flags.c_contiguous


def all_passes(x: np.ndarray, gy: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> tuple:
    """All results, with a ReLU and with a residual."""
    y, statistics = forward(x, gamma, beta, relu=True)
    known = (gamma, beta, statistics, EPS)
    found = kernels.batch_normalization_backward(x, gy, *known, True)
    z = normalized(x, *known, residual=gy)
    return (
        y,
        *statistics,
        *found[:3],
        z,
        *kernels.batch_normalization_backward(x, gy, *known, y=z),
    )


def test_results_do_not_depend_on_the_number_of_threads(implementation: Implementation) -> None:
    """Blocks depend only on the shape, and are combined in order."""
    if not implementation.is_native:
        pytest.skip("the reference computes by NumPy's threads")
    arrays = make((4, 33, 33, 31))
    results = []
    for threads in (1, 2, 3, implementation.threads):
        implementation.set_threads(threads)
        results.append(b"".join(np.ascontiguousarray(a).tobytes() for a in all_passes(*arrays)))
    assert len(set(results)) == 1
