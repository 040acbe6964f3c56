"""ReLU, addition, sums per channel, and the linear layer."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from tests.unit.kernels.layers import random
from tests.unit.kernels.oracles import sum_limit

pytestmark = pytest.mark.usefixtures("implementation")

SHAPES = [(3, 5, 4, 6), (4, 70, 20, 20), (7, 9), (1, 1, 1, 1), (0, 3), (2, 17, 31, 33)]


@pytest.mark.parametrize("shape", SHAPES)
def test_relu(shape: tuple[int, ...]) -> None:
    x, gy = random(shape, 0), random(shape, 1)
    x.reshape(-1)[:1] = 0
    y = kernels.relu_forward(x)
    np.testing.assert_array_equal(y, np.where(x > 0, x, 0))
    np.testing.assert_array_equal(kernels.relu_backward(y, gy), np.where(x > 0, gy, 0))


@pytest.mark.parametrize("shape", SHAPES)
def test_add(shape: tuple[int, ...]) -> None:
    x, y = random(shape, 0), random(shape, 1)
    np.testing.assert_array_equal(kernels.add(x, y), x + y)
    np.testing.assert_array_equal(kernels.add(np.asfortranarray(x), y), x + y)


@pytest.mark.parametrize("shape", SHAPES)
def test_channel_sums(shape: tuple[int, ...]) -> None:
    gy = random(shape, 0).astype(np.float64)
    axes = (0, 2, 3)[: gy.ndim - 1]
    limit = sum_limit(gy.size // shape[1], abs(gy).sum(axes))
    found = kernels.channel_sums(gy.astype(np.float32))
    assert found.dtype == np.float32 and (abs(found - gy.sum(axes)) <= limit).all()
    out = np.empty_like(found)
    assert kernels.channel_sums(gy.astype(np.float32), out) is out
    np.testing.assert_array_equal(out, found)


@pytest.mark.parametrize(
    ("n", "inputs", "outputs"),
    [(6, 5, 4), (1, 1, 1), (64, 512, 10), (33, 17, 30), (7, 256, 100), (0, 3, 2)],
)
def test_linear(n: int, inputs: int, outputs: int) -> None:
    x, W, gy = random((n, inputs), 0), random((outputs, inputs), 1), random((n, outputs), 3)
    b = random((outputs,), 2)
    for order in (np.ascontiguousarray, np.asfortranarray):
        given = [order(array) for array in (x, W, gy)]
        assert_product(kernels.linear_forward(given[0], given[1], None), x, W.T)
        assert_product(kernels.linear_input_gradient(given[2], given[1]), gy, W)
        assert_product(kernels.linear_weight_gradient(given[0], given[2]), gy.T, x)
    plain = kernels.linear_forward(x, W, None)
    np.testing.assert_allclose(kernels.linear_forward(x, W, b), plain + b, rtol=1e-5, atol=1e-5)


def assert_product(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert found.dtype == np.float32
    assert (abs(found - a @ b) <= sum_limit(a.shape[1], abs(a) @ abs(b))).all()


def test_gradient_of_linear_is_written_only_to_out() -> None:
    x, gy = random((6, 5), 0), random((6, 4), 1)
    expected = kernels.linear_weight_gradient(x, gy)
    flat = np.full(60, 7, np.float32)
    for out in (flat[20:40].reshape(4, 5), flat[20:40].reshape(5, 4).T):
        assert kernels.linear_weight_gradient(x, gy, out) is out
        np.testing.assert_array_equal(out, expected)
        assert (flat[:20] == 7).all() and (flat[40:] == 7).all()


def test_wrong_arguments_are_named() -> None:
    x = random((2, 3, 4, 4), 0)
    with pytest.raises(KernelError, match=r"W must have the shape \(any, 3\), not \(4, 5\)"):
        kernels.linear_forward(random((2, 3), 0), random((4, 5), 0), None)
    with pytest.raises(KernelError, match="gy must have the shape"):
        kernels.relu_backward(x, x[:1])
