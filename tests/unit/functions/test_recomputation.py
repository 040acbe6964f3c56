"""Recomputing the outputs of normalisations does not change a single bit of a gradient."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from edgeddl import functions, kernels
from edgeddl.chainer_compat import F, chainer
from edgeddl.functions import node
from edgeddl.functions.backpropagation import backpropagate

CHANNELS = 4
# by name: the package exports a function with the name of this module
batch_normalization = import_module("edgeddl.functions.batch_normalization")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


class Tower(chainer.Chain):
    """A sequence of residual blocks; `outputs` are weak references to their outputs."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        with self.init_scope():
            self.gamma = chainer.Parameter(random(CHANNELS, seed=1))
            self.beta = chainer.Parameter(random(CHANNELS, seed=2))
            self.Ws = chainer.ChainList(*(chainer.Link() for _ in range(blocks)))
            for seed, link in enumerate(self.Ws):
                with link.init_scope():
                    link.W = chainer.Parameter(random(CHANNELS, CHANNELS, 3, 3, seed=seed))
        self.outputs: list[weakref.ref[np.ndarray]] = []

    def normalize(self, x: Any, **options: Any) -> Any:
        y = functions.batch_normalization(x, self.gamma, self.beta, **options)
        self.outputs.append(weakref.ref(y.array))
        return y

    def forward(self, x: Any) -> Any:
        h = self.normalize(x, relu=True)
        for link in self.Ws:
            h = self.normalize(functions.convolution_2d(h, link.W, pad=1), residual=h)
        return h

    @property
    def alive(self) -> list[bool]:
        return [array() is not None for array in self.outputs]


X = random(3, CHANNELS, 6, 6)
GY = random(3, CHANNELS, 6, 6, seed=9)


def by_chainer(tower: Any, y: Any) -> dict[str, bytes]:
    tower.cleargrads()
    y.grad = GY
    y.backward()
    return {name: parameter.grad.tobytes() for name, parameter in tower.namedparams()}


def by_ours(tower: Any, y: Any) -> dict[str, bytes]:
    gradients = backpropagate(y, GY)
    return {name: gradients[p.node].tobytes() for name, p in tower.namedparams()}


@pytest.fixture
def expected(monkeypatch) -> dict[str, bytes]:
    """Gradients of a tower that keeps all its activations."""
    with monkeypatch.context() as patch:
        patch.setattr(batch_normalization, "MAX_CHAIN", 0)
        tower = Tower()
        return by_chainer(tower, tower(X))


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch) -> None:
    monkeypatch.setattr(node, "LARGE", 0)


def test_outputs_are_freed_after_forward() -> None:
    tower = Tower(blocks=2)
    y = tower(X)
    assert tower.alive == [False, False, True]  # the last is y
    assert y is not None


def test_small_outputs_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(node, "LARGE", X.nbytes + 1)
    tower = Tower(blocks=2)
    y = tower(X)
    assert tower.alive == [True, True, True]
    assert y is not None


def test_deep_networks_keep_some_outputs() -> None:
    tower = Tower(blocks=11)
    y = tower(X)
    kept = [index for index, alive in enumerate(tower.alive) if alive]
    assert kept == [3, 7, 11] and y is not None


@pytest.mark.parametrize("backward", [by_chainer, by_ours])
@pytest.mark.parametrize("blocks", [0, 1, 3, 8])
def test_gradients_are_bit_identical(monkeypatch, backward: Callable, blocks: int) -> None:
    tower = Tower(blocks)
    found = backward(tower, tower(X))
    monkeypatch.setattr(batch_normalization, "MAX_CHAIN", 0)
    assert found == by_chainer(tower, tower(X))


def test_backward_frees_recomputed_outputs(expected: dict[str, bytes]) -> None:
    tower = Tower()
    y = tower(X)
    assert by_chainer(tower, y) == expected
    assert tower.alive == [False, False, False, True]


def test_backward_can_run_twice(expected: dict[str, bytes]) -> None:
    tower = Tower()
    y = tower(X)
    assert by_chainer(tower, y) == by_chainer(tower, y) == expected


def test_two_losses_can_share_an_output() -> None:
    """Stock functions read the shape of their inputs even after the inputs are freed."""
    x, residual, gamma = chainer.Parameter(X), chainer.Parameter(X[::-1]), random(X.shape[1])
    h = functions.batch_normalization_add_relu(x, residual, gamma, gamma)
    losses = [F.sum(F.reshape(h, (len(X), -1))[:, part]) for part in (slice(2), slice(2, None))]
    whole = F.sum(h)
    del h
    whole.backward()
    expected = x.grad
    x.cleargrad()
    for loss in losses:
        loss.backward()
    np.testing.assert_allclose(x.grad, expected, rtol=1e-5, atol=1e-6)


def test_an_output_is_recomputed_once_for_all_functions_that_need_it(monkeypatch) -> None:
    tower = Tower(blocks=0)
    h = tower(X)
    W = tower.gamma.array[:, None, None, None] * random(CHANNELS, CHANNELS, 3, 3)
    y = functions.add(*(functions.convolution_2d(h, chainer.Parameter(W), pad=1) for _ in range(3)))
    del h
    calls = []
    compute = kernels.batch_normalization_forward
    monkeypatch.setattr(
        kernels,
        "batch_normalization_forward",
        lambda *arguments: (calls.append(arguments), compute(*arguments))[1],
    )
    backpropagate(y, GY)
    assert len(calls) == 1


def test_outputs_that_are_still_referenced_are_not_recomputed(monkeypatch) -> None:
    tower = Tower(blocks=0)
    h = tower(X)
    y = functions.convolution_2d(h, chainer.Parameter(random(CHANNELS, CHANNELS, 3, 3)), pad=1)

    def fail(*arguments: Any) -> None:
        raise AssertionError("the output is still alive")

    monkeypatch.setattr(kernels, "batch_normalization_forward", fail)
    backpropagate(y, GY)
    assert h.array is not None


def test_stock_functions_may_use_outputs(expected: dict[str, bytes]) -> None:
    """They keep the outputs, so backward can be called again."""

    class Mixed(Tower):
        def forward(self, x: Any) -> Any:
            h = self.normalize(x, relu=True)
            for link in self.Ws:
                h = self.normalize(F.convolution_2d(h, link.W, pad=1), residual=h)
            return h

    tower = Mixed()
    y = tower(X)
    first = by_chainer(tower, y)
    assert by_chainer(tower, y) == first == by_ours(tower, tower(X))
    for name, gradient in expected.items():
        found, exact = (np.frombuffer(bits, np.float32) for bits in (first[name], gradient))
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)


class Hook(chainer.FunctionHook):
    name = "Hook"


def test_hooks_and_debug_mode_do_not_change_gradients(expected: dict[str, bytes]) -> None:
    tower = Tower()
    with Hook():
        y = tower(X)
    assert by_chainer(tower, y) == expected
    y = tower(X)
    with Hook():
        assert by_chainer(tower, y) == expected
    with chainer.using_config("debug", True):
        assert by_chainer(tower, tower(X)) == expected


def test_recomputation_works_inside_chainers_forget(expected: dict[str, bytes]) -> None:
    tower = Tower()
    y = F.forget(tower, chainer.Variable(X))
    assert by_chainer(tower, y) == expected


@pytest.mark.parametrize("cut", [lambda h: h.unchain(), lambda h: h.unchain_backward()])
def test_the_graph_can_be_unchained_at_an_output(cut: Callable[[Any], None]) -> None:
    """The convolution after the cut can read its input, whatever happens to the source."""
    gradients = []
    for large in (0, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node, "LARGE", large)
            h = Tower(blocks=2)(X)
            W = chainer.Parameter(random(CHANNELS, CHANNELS, 3, 3))
            y = functions.convolution_2d(h, W, pad=1)
            cut(h)
            del h
            gradients.append(backpropagate(y, GY)[W.node].tobytes())
    assert gradients[0] == gradients[1]


def test_two_graphs_can_exist_at_once(expected: dict[str, bytes]) -> None:
    """As in gradient accumulation over micro-batches."""
    tower = Tower()
    first, second = tower(X), tower(X)
    assert by_ours(tower, second) == by_ours(tower, first) == expected
