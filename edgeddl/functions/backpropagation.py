"""Backward through a graph that is used once, as a training step does.

As Chainer's Variable.backward, in the same order, but gradients are plain arrays, and what a
function has kept leaves memory as soon as its gradients are there, or as soon as its kernels, which
may be put off, have run: the peak of a step is then what forward keeps, not that and all gradients.
"""

from __future__ import annotations

import heapq
from typing import Any

from edgeddl.chainer_compat import chainer
from edgeddl.functions.node import Array, Node
from edgeddl.kernels import deferral
from edgeddl.kernels.deferral import at_once, deferred, finish

# By variable node: the gradient of what it stands for.
Gradients = dict[Any, Array]


def backpropagate(loss: chainer.Variable, gradient: Array) -> Gradients:
    """The gradients of the leaves of the graph, parameters above all; the graph is gone then."""
    gradients: Gradients = {loss.node: gradient}
    waiting = _Waiting(loss.creator_node)
    hooks = chainer.get_function_hooks().values()
    most_bytes = deferral.MOST_BYTES_OF_BACKWARD
    with chainer.using_config("enable_backprop", False), deferred(most_bytes):
        while waiting.heap:
            function = heapq.heappop(waiting.heap)[2]
            for node in _propagate(function, gradients, hooks):
                waiting.add(node._creator_node)
            function.unchain()
            function._retained_output_data = None
        finish()  # also within another's block
    return gradients


class _Waiting:
    """Functions whose output has a gradient; what forward called last comes first."""

    def __init__(self, function: Any) -> None:
        self.heap: list[tuple[int, int, Any]] = []
        self._seen: set[Any] = set()
        self.add(function)

    def add(self, function: Any) -> None:
        if function is not None and function not in self._seen:
            heapq.heappush(self.heap, (-function.rank, len(self._seen), function))
            self._seen.add(function)


def _propagate(function: Any, gradients: Gradients, hooks: Any) -> list[Any]:
    """Turn the gradients of a function's outputs to those of its inputs; which have one now?"""
    outputs = [reference() for reference in function.outputs]  # kept alive: functions ask for them
    found = [gradients.pop(output, None) for output in outputs]
    inputs, indexes, so_far = function.inputs, [], {}
    for index, node in enumerate(inputs):
        if node._requires_grad:
            indexes.append(index)
            if node in gradients:
                so_far[index] = gradients.pop(node)
    if not indexes:
        return []
    if hooks:
        totals = _accumulate_with_hooks(function, indexes, found, so_far, hooks)
    else:
        totals = _accumulate(function, indexes, found, so_far)
    reached = []
    for index, total in zip(indexes, totals, strict=True):
        if total is not None:
            node = inputs[index]
            if node in gradients:  # an input that is given twice has two totals
                finish()
                total = gradients[node] + total
            gradients[node] = total
            reached.append(node)
    return reached


def _accumulate_with_hooks(
    function: Any,
    indexes: list[int],
    found: list[Array | None],
    so_far: dict[int, Array],
    hooks: Any,
) -> list[Array | None]:
    """At once: hooks look at arrays, or at the time."""
    in_data = tuple([node.data for node in function.inputs])
    with at_once():
        for hook in hooks:
            hook.backward_preprocess(function, in_data, tuple(found))
        totals = _accumulate(function, indexes, found, so_far)
        for hook in hooks:
            hook.backward_postprocess(function, in_data, tuple(found))
    return totals


def _accumulate(
    function: Any, indexes: list[int], found: list[Array | None], so_far: dict[int, Array]
) -> list[Array | None]:
    """The gradients of these inputs, added to those found so far."""
    if not isinstance(function, Node):
        return _accumulate_by_chainer(function, tuple(indexes), found, so_far)
    if not function.needs_output:  # those that it went to are done
        function.outputs[0]()._data = None  # its shape stays
    gy = found[0]
    assert gy is not None  # of its only output: else it would not wait
    return function.accumulate(indexes, gy, so_far)


def _accumulate_by_chainer(
    function: Any, indexes: tuple[int, ...], found: list[Array | None], so_far: dict[int, Array]
) -> list[Array | None]:
    """As Node.accumulate, for functions that take and give variables."""
    finish()
    before = tuple([_variable(so_far.get(index)) for index in indexes])
    totals = function.backward_accumulate(indexes, tuple(map(_variable, found)), before)
    return [None if total is None else total.array for total in totals]


def _variable(array: Array | None) -> chainer.Variable | None:
    return None if array is None else chainer.as_variable(array)
