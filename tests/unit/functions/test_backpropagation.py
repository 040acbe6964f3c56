"""The backward pass of a training step, compared with Chainer's; the memory that it frees."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeddl import functions
from edgeddl.chainer_compat import F, chainer
from edgeddl.functions import node
from edgeddl.functions.backpropagation import backpropagate
from edgeddl.functions.gradient_sink import collecting
from edgeddl.functions.node import Node
from edgeddl.kernels import call_queue
from edgeddl.kernels.call_queue import queued_calls
from edgeddl.models import build_model
from edgeddl.models.resnet9 import Residual
from edgeddl.models.resnet18 import BasicBlock


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


X = random(3, 4, 6, 6)
T = np.array([0, 1, 3], np.int32)


class Net(chainer.Chain):
    """Applies `body` to an image and a parameter of the same shape, then a loss."""

    def __init__(self, body: Callable[[Net, Any], Any]) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        with self.init_scope():
            self.image = chainer.Parameter(random(*X.shape, seed=1))
            self.block = BasicBlock(4, 4, 1, rng)
            self.shrinking = BasicBlock(4, 6, 2, rng)
            self.residual = Residual(4, rng)
            self.unused = chainer.Parameter(random(4))
        self.body = body

    def forward(self, x: Any) -> Any:
        logits = functions.global_average_pooling_2d(self.body(self, x))
        return functions.softmax_cross_entropy(logits, T)


def stock_in_the_middle(net: Net, x: Any) -> Any:
    parts = F.split_axis(F.leaky_relu(net.block(x)), 2, axis=1)
    return net.residual(F.concat([parts[1], 2 * parts[0]]))


GRAPHS: dict[str, Callable[[Net, Any], Any]] = {
    "residuals": lambda net, x: net.residual(net.block(x)),
    "a residual of another shape": lambda net, x: net.shrinking(net.block(x)),
    "an input used twice": lambda net, x: functions.add(net.block(net.image), net.image),
    "an input given twice": lambda net, x: functions.add(net.image, net.image),
    "a stock input given twice": lambda net, x: net.image * net.image,
    "stock functions": stock_in_the_middle,
    "an output without a gradient": lambda net, x: net.block(F.split_axis(x * net.image, 1, 0)[0]),
    "only one output of two": lambda net, x: net.block(
        F.concat([F.split_axis(net.residual(x), 2, axis=1)[0]] * 2)
    ),
    "a single function": lambda net, x: net.image,
    "forgotten functions": lambda net, x: F.forget(
        lambda h: functions.relu(F.leaky_relu(functions.add(h, h))), net.image
    ),
}


def chainers(net: Net) -> dict[str, np.ndarray | None]:
    net.cleargrads()
    net(X).backward()
    return {name: parameter.grad for name, parameter in net.namedparams()}


def ours(net: Net) -> dict[str, np.ndarray | None]:
    loss = net(X)
    gradients = backpropagate(loss, np.ones_like(loss.array))
    return {name: gradients.get(parameter.node) for name, parameter in net.namedparams()}


def all_queued(net: Net) -> dict[str, np.ndarray | None]:
    """As `ours`, with the kernel calls of forward queued as well."""
    with queued_calls():
        loss = net(X)
    gradients = backpropagate(loss, np.ones_like(loss.array))
    return {name: gradients.get(parameter.node) for name, parameter in net.namedparams()}


def assert_equal(
    found: dict[str, np.ndarray | None], expected: dict[str, np.ndarray | None]
) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_array_equal(found[name], gradient, err_msg=name)


@pytest.fixture(params=[0, node.LARGE], ids=["recomputed", "kept"])
def large(request, monkeypatch) -> int:
    """The size from which activations are recomputed."""
    monkeypatch.setattr(node, "LARGE", request.param)
    return request.param


@pytest.mark.usefixtures("large", "unwritten")
@pytest.mark.parametrize("name", GRAPHS)
def test_gradients_equal_chainers(name: str) -> None:
    net = Net(GRAPHS[name])
    expected = chainers(net)
    assert sum(gradient is not None for gradient in expected.values()) >= 1
    assert_equal(ours(net), expected)
    assert_equal(all_queued(net), expected)


@pytest.mark.usefixtures("large", "unwritten")
@pytest.mark.parametrize("model", ["resnet9", "resnet18"])
def test_gradients_of_models_equal_chainers(model: str) -> None:
    net: Any = Net(lambda net, x: x)
    net.add_link("model", build_model(model, classes=10))
    x = random(2, 3, 32, 32)
    net.forward = lambda _: functions.softmax_cross_entropy(net.model(x), T[:2])
    expected = chainers(net)
    assert_equal(ours(net), expected)
    assert_equal(all_queued(net), expected)


def test_the_gradient_of_the_loss_scales_all_gradients() -> None:
    net = Net(GRAPHS["residuals"])
    loss = net(X)
    half = backpropagate(loss, np.asarray(0.5, np.float32))
    for name, gradient in chainers(net).items():
        if gradient is not None:
            found = half[dict(net.namedparams())[name].node]
            np.testing.assert_allclose(found, gradient / 2, rtol=1e-5, atol=1e-7)


def test_leaves_that_require_no_gradient_get_none() -> None:
    image, fixed = chainer.Variable(X), chainer.Variable(X, requires_grad=False)
    gradients = backpropagate(F.sum(functions.add(image, fixed)), np.ones((), np.float32))
    assert list(gradients) == [image.node]
    np.testing.assert_array_equal(gradients[image.node], np.ones_like(X))


def test_nothing_is_computed_if_no_input_requires_a_gradient(monkeypatch) -> None:
    def fail(*arguments: Any) -> None:
        raise AssertionError("no gradient is required")

    monkeypatch.setattr(Node, "accumulate", fail)
    loss = F.sum(functions.add(chainer.Variable(X, requires_grad=False), X))
    assert backpropagate(loss, np.ones((), np.float32)) == {}


class Recorder(chainer.FunctionHook):
    """The functions that hooks are called for, and their arguments."""

    name = "Recorder"

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self.note("before", function, in_data, out_grad)

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self.note("after", function, in_data, out_grad)

    def note(self, when: str, function: Any, in_data: Any, out_grad: Any) -> None:
        grads = [None if g is None else g.tobytes() for g in out_grad]
        self.seen.append((when, function.label, len(in_data), grads))


@pytest.mark.usefixtures("unwritten")
@pytest.mark.parametrize("name", GRAPHS)
def test_function_hooks_are_called_as_by_chainer(name: str) -> None:
    net = Net(GRAPHS[name])
    seen = []
    for run in (chainers, ours):
        with Recorder() as hook:
            run(net)
        seen.append(hook.seen)
    assert seen[0] == seen[1] != []


def test_backward_frees_the_graph() -> None:
    net = Net(GRAPHS["residuals"])
    loss = net(X)
    functions_of_graph = [weakref.ref(loss.creator_node)]
    functions_of_graph.append(weakref.ref(loss.creator_node.inputs[0].creator_node))
    backpropagate(loss, np.ones_like(loss.array))
    assert loss.creator_node is None
    assert [function() for function in functions_of_graph] == [None, None]


class Watch:
    """A sink that takes no gradients but counts the arrays that are alive at each one."""

    def __init__(self, arrays: list[weakref.ref[np.ndarray]]) -> None:
        self.arrays = arrays
        self.alive: list[int] = []

    def view_for(self, parameter: Any) -> None:
        self.alive.append(sum(array() is not None for array in self.arrays))

    def ready(self, parameter: Any) -> None:
        raise AssertionError("no view was given")


def memory_of(variable: Any) -> np.ndarray:
    """The array that owns a variable's memory."""
    base = variable.array.base
    return variable.array if base is None else base


@pytest.mark.parametrize("activation", [lambda h: h, functions.relu])
def test_activations_are_freed_during_backward(
    activation: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each convolution keeps its input: every gradient frees one activation."""
    monkeypatch.setattr(call_queue, "MAX_BYTES_OF_BACKWARD", -1)  # no call is queued for long
    count = 5
    weights = [chainer.Parameter(random(4, 4, 3, 3, seed=seed)) for seed in range(count)]
    h, arrays = chainer.Variable(X), []
    for W in weights[:-1]:
        h = activation(functions.convolution_2d(h, W, pad=1))
        arrays.append(weakref.ref(memory_of(h)))
    h = functions.convolution_2d(h, weights[-1], pad=1)
    arrays.append(weakref.ref(memory_of(h)))
    loss = F.sum(h)
    del h
    watch = Watch(arrays)
    with collecting(watch):
        backpropagate(loss, np.ones((), np.float32))
    # only the sum has used the last result, and it keeps only its shape
    assert watch.alive == [count - 1, count - 2, count - 3, count - 4, 0]
