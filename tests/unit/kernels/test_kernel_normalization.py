"""Batch normalisation kernels against float64 and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl import kernels
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
    """x, gy, gamma, beta."""
    rng = np.random.default_rng(3)
    x, gy = rng.standard_normal((2, *shape), np.float32)
    gamma, beta = rng.standard_normal((2, shape[1]), np.float32)
    return x + np.float32(offset), gy, gamma, beta


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
    y, mean, var = kernels.batch_normalization_forward(x, gamma, beta, EPS)
    x64 = x.astype(np.float64)
    # One rounding of a mean near `offset`; the variance is of deviations from such a mean, whose
    # squares are summed: a random walk of so many steps, where it is not cut into blocks.
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
    x: np.ndarray, g: np.ndarray, gamma: np.ndarray, var: np.ndarray, found: tuple[np.ndarray, ...]
) -> None:
    """gx, ggamma and gbeta, for the gradient g of what was normalised."""
    m = x.size // x.shape[1]
    limit = 16 * UNIT_ROUNDOFF * np.sqrt(m) * max(np.sqrt(m), 8)  # a random walk of m steps
    exact = exact_gradients(x, g, gamma)
    for sums, expected in zip(found[1:], exact[1:], strict=True):
        np.testing.assert_allclose(sums, expected, rtol=0, atol=limit)
    scale = abs(wide(gamma, x)) / np.sqrt(wide(var, x) + EPS)
    assert (abs(found[0] - exact[0]) <= 64 * UNIT_ROUNDOFF * scale * 8).all()
    assert {array.dtype for array in found} == {np.dtype(np.float32)}


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_backward(shape: tuple[int, ...], relu: bool) -> None:
    """Where the ReLU gave 0 is found again from x: exactly there where y was 0."""
    x, gy, gamma, beta = make(shape)
    y, *moments = kernels.batch_normalization_forward(x, gamma, beta, EPS, relu)
    known = (gamma, beta, *moments, EPS)
    sums = kernels.batch_normalization_parameter_gradients(x, gy, *known, relu)
    gx = kernels.batch_normalization_input_gradient(x, gy, *known, *sums, relu)
    g = np.where(y > 0, gy, np.float32(0)) if relu else gy
    assert_gradients(x, g, gamma, moments[1], (gx, *sums))
    plain = kernels.batch_normalization_parameter_gradients(x, g, *known)
    for one, other in zip(sums, plain, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", SHAPES)
def test_backward_with_a_residual(shape: tuple[int, ...]) -> None:
    x, gy, gamma, beta = make(shape)
    residual = make(shape, -0.25)[1]
    y, *moments = kernels.batch_normalization_forward(x, gamma, beta, EPS, residual=residual)
    g, *sums = kernels.batch_normalization_residual_gradients(x, y, gy, *moments, EPS)
    np.testing.assert_array_equal(g, np.where(y > 0, gy, 0))
    gx = kernels.batch_normalization_input_gradient(x, g, gamma, beta, *moments, EPS, *sums)
    assert_gradients(x, g, gamma, moments[1], (gx, *sums))


@pytest.mark.parametrize("shape", [(3, 5, 2, 4), (7, 3)])
def test_gradients_are_the_slopes_of_the_forward_pass(shape: tuple[int, ...]) -> None:
    x, gy, gamma, beta = make(shape)
    _, mean, var = kernels.batch_normalization_forward(x, gamma, beta, EPS)
    known = (gamma, beta, mean, var, EPS)
    ggamma, gbeta = kernels.batch_normalization_parameter_gradients(x, gy, *known)
    gx = kernels.batch_normalization_input_gradient(x, gy, *known, ggamma, gbeta)
    arguments = [array.astype(np.float64) for array in (x, gamma, beta)]
    for argument, gradient in enumerate((gx, ggamma, gbeta)):
        for index in np.ndindex(gradient.shape):
            up, down = ([a.copy() for a in arguments] for _ in range(2))
            up[argument][index] += 1e-5
            down[argument][index] -= 1e-5
            slope = np.sum(gy * (exact_forward(*up) - exact_forward(*down))) / 2e-5
            assert gradient[index] == pytest.approx(slope, rel=1e-4, abs=2e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_equals_one_after_the_other(shape: tuple[int, ...]) -> None:
    x, residual, gamma, beta = make(shape)
    plain, *moments = kernels.batch_normalization_forward(x, gamma, beta, EPS)
    given = (x, gamma, beta, *moments, EPS)
    np.testing.assert_array_equal(kernels.batch_normalization_inference(*given), plain)
    rectified, *others = kernels.batch_normalization_forward(x, gamma, beta, EPS, True)
    np.testing.assert_array_equal(rectified, np.maximum(plain, 0))
    np.testing.assert_array_equal(kernels.batch_normalization_inference(*given, True), rectified)
    total = kernels.batch_normalization_forward(x, gamma, beta, EPS, residual=residual)[0]
    # a fused multiply-add has one rounding less
    np.testing.assert_allclose(total, np.maximum(plain + residual, 0), rtol=1e-5, atol=1e-5)
    again = kernels.batch_normalization_inference(*given, residual=residual)
    np.testing.assert_array_equal(again, total)
    for one, other in zip(moments, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_inference_uses_the_given_statistics() -> None:
    x, _, gamma, beta = make((2, 3, 4, 4))
    mean, var = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    y = kernels.batch_normalization_inference(x, gamma, beta, mean, var, EPS)
    scale = wide(gamma, x) / np.sqrt(wide(var, x) + EPS)
    np.testing.assert_allclose(y, scale * (x - wide(mean, x)) + wide(beta, x), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # no rows: 0 / 0
def test_an_empty_batch_can_be_inferred_and_has_no_gradient() -> None:
    x, gy, gamma, beta = (array[:0] if array.ndim > 1 else array for array in make((2, 3, 4, 4)))
    known = (gamma, beta, beta, abs(gamma), EPS)
    assert kernels.batch_normalization_inference(x, *known, True).shape == x.shape
    sums = kernels.batch_normalization_parameter_gradients(x, gy, *known, True)
    assert not np.any(sums)
    assert kernels.batch_normalization_input_gradient(x, gy, *known, *sums).shape == x.shape


def test_blocks_of_the_reference_do_not_show(monkeypatch) -> None:
    x, gy, gamma, beta = make((5, 7, 9, 11))
    forward = (kernels.batch_normalization_forward, x, gamma, beta, EPS)
    whole = by_reference(*forward)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 7 * 4 * 13)
    parts = by_reference(*forward)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    sums = by_reference(kernels.channel_sums, gy)
    np.testing.assert_allclose(sums, gy.sum((0, 2, 3)), rtol=1e-4, atol=1e-4)


ORDERS = [np.asfortranarray, lambda a: np.repeat(a, 2, axis=-1)[..., ::2], lambda a: a[::-1][::-1]]


@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (6, 5)])
@pytest.mark.parametrize("order", ORDERS)
def test_strides_do_not_matter(order, shape: tuple[int, ...]) -> None:
    arrays = make(shape)
    for one, other in zip(all_passes(*arrays), all_passes(*map(order, arrays)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.ndim != 4 or one.transpose(0, 2, 3, 1).flags.c_contiguous


def all_passes(x: np.ndarray, gy: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> tuple:
    """Everything that is computed, with a ReLU and with a residual."""
    y, *moments = kernels.batch_normalization_forward(x, gamma, beta, EPS, True)
    known = (gamma, beta, *moments, EPS)
    sums = kernels.batch_normalization_parameter_gradients(x, gy, *known, True)
    gx = kernels.batch_normalization_input_gradient(x, gy, *known, *sums, True)
    z = kernels.batch_normalization_inference(x, *known, residual=gy)
    return (
        y,
        *moments,
        *sums,
        gx,
        z,
        *kernels.batch_normalization_residual_gradients(x, z, gy, *moments, EPS),
    )


def test_threads_do_not_show_in_a_single_bit(implementation: Implementation) -> None:
    """Blocks follow from the shape alone, and are joined in order."""
    if not implementation.is_native:
        pytest.skip("the reference computes by NumPy's threads")
    arrays = make((4, 33, 33, 31))
    results = []
    for threads in (1, 2, 3, implementation.threads):
        implementation.set_threads(threads)
        results.append(b"".join(np.ascontiguousarray(a).tobytes() for a in all_passes(*arrays)))
    assert len(set(results)) == 1
