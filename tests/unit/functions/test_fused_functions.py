"""Fused functions, compared with sequences of Chainer's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeddl import functions
from edgeddl.chainer_compat import F, chainer
from edgeddl.links import BatchNormalization, Convolution2D

CHANNELS = 12


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def make_inputs() -> dict[str, Any]:
    arrays = {
        "x": random(3, CHANNELS, 9, 7),
        "gamma": random(CHANNELS, seed=1),
        "beta": random(CHANNELS, seed=2),
        "W": 0.1 * random(16, CHANNELS, 3, 3, seed=3),
    }
    return {name: chainer.Variable(array) for name, array in arrays.items()}


def results(y: Any, inputs: dict[str, Any]) -> list[np.ndarray]:
    """The result, and the gradients of all inputs."""
    y.grad = random(*y.shape, seed=4)
    y.backward()
    return [y.array, *(variable.grad for variable in inputs.values())]


def assert_alike(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("stride", [1, 2])
def test_normalized_convolution(stride: int) -> None:
    ours, theirs = make_inputs(), make_inputs()
    running = [np.zeros(CHANNELS, np.float32), np.ones(CHANNELS, np.float32)]
    stock_running = [array.copy() for array in running]
    y = functions.normalized_convolution_2d(
        *(ours[name] for name in ("x", "gamma", "beta", "W")), stride, 1,
        running_mean=running[0], running_var=running[1],
    )  # fmt: skip
    h = F.relu(
        F.batch_normalization(
            *(theirs[name] for name in ("x", "gamma", "beta")),
            running_mean=stock_running[0], running_var=stock_running[1],
        )
    )  # fmt: skip
    stock = F.convolution_2d(h, theirs["W"], stride=stride, pad=1)
    assert_alike(results(y, ours), results(stock, theirs))
    assert_alike(running, stock_running)


def test_normalized_convolution_with_given_statistics() -> None:
    ours, theirs = make_inputs(), make_inputs()
    mean, var = random(CHANNELS, seed=5), np.abs(random(CHANNELS, seed=6)) + 1
    y = functions.fixed_normalized_convolution_2d(
        ours["x"], ours["gamma"], ours["beta"], mean, var, ours["W"], 1, 1
    )
    h = F.fixed_batch_normalization(theirs["x"], theirs["gamma"], theirs["beta"], mean, var)
    stock = F.convolution_2d(F.relu(h), theirs["W"], pad=1)
    assert_alike(results(y, ours), results(stock, theirs))


def test_the_normalised_activation_is_not_kept() -> None:
    inputs = make_inputs()
    y = functions.normalized_convolution_2d(*(inputs[n] for n in ("x", "gamma", "beta", "W")))
    kept = [node.data for node in y.creator_node.inputs]
    assert all(any(array is variable.array for variable in inputs.values()) for array in kept)
    assert y.creator_node.get_retained_outputs() == ()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_a_convolution_can_include_the_normalisation_before_it(bias: bool, train: bool) -> None:
    rng = np.random.default_rng(0)
    layer = Convolution2D(CHANNELS, 4, 3, pad=1, nobias=not bias, rng=rng)
    normalization = BatchNormalization(CHANNELS)
    x = random(2, CHANNELS, 5, 5)
    with chainer.using_config("train", train):
        found = layer(x, after=normalization)
        expected = layer(normalization(x, relu=True))
    np.testing.assert_allclose(found.array, expected.array, rtol=1e-4, atol=1e-4)


def test_gradients_of_a_variable_that_is_used_twice_are_added() -> None:
    """The convolution adds to the gradient of the other branch."""
    sums = []
    for convolution in (functions.convolution_2d, F.convolution_2d):
        inputs = make_inputs()
        x, W = inputs["x"], inputs["W"][:CHANNELS]
        y = convolution(x, W, pad=1) + x * 2 + convolution(x, W, pad=1)
        y.grad = random(*y.shape, seed=4)
        y.backward()
        sums.append(x.grad)
    np.testing.assert_allclose(*sums, rtol=2e-4, atol=2e-4)


def test_gradients_are_added_to_existing_ones() -> None:
    inputs = make_inputs()
    x, W = inputs["x"], inputs["W"]
    for _ in range(2):
        y = functions.convolution_2d(x, W, pad=1)
        y.grad = random(*y.shape, seed=4)
        y.backward()
    once = make_inputs()
    y = functions.convolution_2d(once["x"], once["W"], pad=1)
    y.grad = random(*y.shape, seed=4)
    y.backward()
    np.testing.assert_allclose(W.grad, 2 * once["W"].grad, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(x.grad, 2 * once["x"].grad, rtol=1e-5, atol=1e-5)
