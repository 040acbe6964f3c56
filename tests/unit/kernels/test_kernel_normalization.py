"""Batch normalisation kernels against float64."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels.reference import blocks
from tests.unit.kernels.oracles import UNIT_ROUNDOFF

EPS = 2e-5
SHAPES = [(2, 64, 32, 32), (3, 17, 7, 5), (4, 512, 1, 1), (2, 1, 1, 1), (64, 5), (2, 3, 200, 70)]


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


def exact_gradients(x, gy, gamma) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    # One rounding of a mean near `offset`; the variance is of deviations from such a mean.
    slack = 8 * UNIT_ROUNDOFF
    np.testing.assert_allclose(mean, x64.mean(axes(x)), atol=slack * (offset + 1))
    np.testing.assert_allclose(
        var, x64.var(axes(x)), rtol=4 * slack, atol=(slack * offset) ** 2 + 1e-12
    )
    std = np.sqrt(wide(x64.var(axes(x)), x) + EPS)
    expected = wide(gamma, x) * (x64 - wide(x64.mean(axes(x)), x)) / std + wide(beta, x)
    limit = slack * ((offset + 1) / std * abs(wide(gamma, x)) + 4 * abs(expected) + 1)
    assert (abs(y - expected) <= limit).all()
    assert y.dtype == mean.dtype == var.dtype == np.float32


@pytest.mark.parametrize("shape", SHAPES)
def test_backward(shape: tuple[int, ...]) -> None:
    x, gy, gamma, beta = make(shape)
    _, mean, var = kernels.batch_normalization_forward(x, gamma, beta, EPS)
    sums = kernels.batch_normalization_parameter_gradients(x, gy, mean, var, EPS)
    gx = kernels.batch_normalization_input_gradient(x, gy, gamma, mean, var, EPS, *sums)
    exact_gx, exact_ggamma, exact_gbeta = exact_gradients(x, gy, gamma)
    m = x.size // x.shape[1]
    limit = 16 * UNIT_ROUNDOFF * np.sqrt(m) * max(np.sqrt(m), 8)  # a random walk of m steps
    np.testing.assert_allclose(sums[0], exact_ggamma, atol=limit)
    np.testing.assert_allclose(sums[1], exact_gbeta, atol=limit)
    scale = abs(wide(gamma, x)) / np.sqrt(wide(var, x) + EPS)
    assert (abs(gx - exact_gx) <= 64 * UNIT_ROUNDOFF * scale * 8).all()
    assert gx.dtype == np.float32


def test_inference_uses_the_given_statistics() -> None:
    x, _, gamma, beta = make((2, 3, 4, 4))
    mean, var = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    y = kernels.batch_normalization_inference(x, gamma, beta, mean, var, EPS)
    scale = wide(gamma, x) / np.sqrt(wide(var, x) + EPS)
    np.testing.assert_allclose(y, scale * (x - wide(mean, x)) + wide(beta, x), rtol=1e-5, atol=1e-5)


def test_blocks_do_not_show(monkeypatch) -> None:
    x, gy, gamma, beta = make((5, 7, 9, 11))
    whole = kernels.batch_normalization_forward(x, gamma, beta, EPS)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 7 * 4 * 13)
    parts = kernels.batch_normalization_forward(x, gamma, beta, EPS)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kernels.channel_sums(gy), gy.sum((0, 2, 3)), rtol=1e-4, atol=1e-4)


def test_strides_do_not_matter() -> None:
    x, _, gamma, beta = make((3, 5, 4, 6))
    y, mean, var = kernels.batch_normalization_forward(x, gamma, beta, EPS)
    other = kernels.batch_normalization_forward(np.asfortranarray(x), gamma, beta, EPS)
    for one, two in zip((y, mean, var), other, strict=True):
        np.testing.assert_array_equal(one, two)
    assert y.transpose(0, 2, 3, 1).flags.c_contiguous


def test_wrong_arguments_are_named() -> None:
    x, gy, gamma, beta = make((2, 3, 4, 4))
    with pytest.raises(KernelError, match=r"gamma must have the shape \(3\), not \(2,\)"):
        kernels.batch_normalization_forward(x, gamma[:2], beta, EPS)
    with pytest.raises(KernelError, match="batch is empty"):
        kernels.batch_normalization_forward(x[:0], gamma, beta, EPS)
    with pytest.raises(KernelError, match="gy must have the shape"):
        kernels.batch_normalization_parameter_gradients(x, gy[:1], gamma, beta, EPS)
    with pytest.raises(KernelError, match="x must have the shape"):
        kernels.batch_normalization_forward(x[0], gamma, beta, EPS)
