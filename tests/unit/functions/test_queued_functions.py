"""Functions whose kernel calls are queued: every reader of an array finds the computed values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeddl import functions, kernels
from edgeddl.chainer_compat import F, chainer
from edgeddl.functions.backpropagation import backpropagate
from edgeddl.functions.gradient_sink import collecting
from edgeddl.kernels.call_queue import queue, queued_calls
from tests.models import TinyNormalisedNet

X = np.random.default_rng(0).standard_normal((4, 3, 8, 8), np.float32)
T = np.array([0, 1, 3, 2], np.int32)

pytestmark = pytest.mark.usefixtures("unwritten")

READERS: dict[str, Callable[[Any], np.ndarray]] = {
    "array": lambda h: h.array.copy(),
    "data": lambda h: h.data.copy(),
    "a stock function": lambda h: F.leaky_relu(h).array,
    "an operator": lambda h: (h * 2).array,
    "a part": lambda h: h[1:].array,
    "a copy": lambda h: copy.copy(h).array.copy(),
}


@pytest.mark.parametrize("reader", READERS)
def test_reading_a_variable_runs_queued_kernels(reader: str) -> None:
    read = READERS[reader]
    expected = read(functions.relu(functions.add(X, X)))
    with queued_calls():
        found = read(functions.relu(functions.add(X, X)))
        np.testing.assert_array_equal(found, expected)


def test_reading_a_shape_runs_no_kernel() -> None:
    with queued_calls():
        h = functions.add(X, X)
        assert (h.shape, h.ndim, h.size, h.dtype) == (X.shape, 4, X.size, X.dtype)
        assert len(queue.calls) == (1 if kernels.chosen().startswith("native") else 0)


def test_variables_are_chainers_own_if_nothing_is_queued() -> None:
    assert type(functions.add(X, X)) is chainer.Variable


class Snapshots(chainer.FunctionHook):
    """Records what hooks see."""

    name = "Snapshots"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        self.seen.append([array.copy() for array in in_data])

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        self.seen.append(len(queue.calls))


def test_hooks_see_computed_arrays() -> None:
    with queued_calls():
        h = functions.add(X, X)
        with Snapshots() as hook:
            functions.relu(h)
    before, waiting = hook.seen
    np.testing.assert_array_equal(before[0], X + X)
    assert waiting == 0


def test_chainers_debug_mode_detects_nan() -> None:
    image = X.copy()
    image[0, 0, 0, 0] = np.nan
    with queued_calls(), chainer.using_config("debug", True):
        functions.relu(X)  # finite, unless its uninitialised memory is read
        with pytest.raises(RuntimeError, match="NaN is detected"):
            functions.add(image, X)


class Reading:
    """A sink that reads a gradient as soon as it is ready."""

    def __init__(self, net: chainer.Chain) -> None:
        self.views = {id(p): np.full_like(p.array, np.nan) for p in net.params()}
        self.seen: dict[int, np.ndarray] = {}

    def view_for(self, parameter: Any) -> np.ndarray:
        return self.views[id(parameter)]

    def ready(self, parameter: Any) -> None:
        self.seen[id(parameter)] = self.views[id(parameter)].copy()


def test_gradients_are_written_when_the_sink_is_notified() -> None:
    net = TinyNormalisedNet()
    net.cleargrads()
    loss = functions.softmax_cross_entropy(net(X), T)
    loss.backward()
    sink = Reading(net)
    with queued_calls():
        loss = functions.softmax_cross_entropy(net(X), T)
    with collecting(sink):
        backpropagate(loss, np.ones((), np.float32))
    for name, parameter in net.namedparams():
        np.testing.assert_array_equal(sink.seen[id(parameter)], parameter.grad, err_msg=name)
