"""Backward through a graph that is used only once, as in a training step.

As Chainer's Variable.backward, in the same order, but gradients are plain arrays, and the arrays
that a function has kept are freed as soon as its gradients are computed (its queued kernels have
run). So the peak memory of a step is what forward keeps, not that plus all gradients.
"""

from __future__ import annotations

import heapq
from typing import Any

from edgeddl.chainer_compat import chainer
from edgeddl.functions.node import Array, Node
from edgeddl.kernels import call_queue
from edgeddl.kernels.call_queue import flush, immediate_calls, queued_calls

# By variable node: the gradient of its variable.
Gradients = dict[Any, Array]


def backpropagate(loss: chainer.Variable, gradient: Array) -> Gradients:
    """The gradients of the graph's leaves, mostly parameters. This frees the graph."""
    gradients: Gradients = {loss.node: gradient}
    pending = _Pending(loss.creator_node)
    hooks = chainer.get_function_hooks().values()
    max_bytes = call_queue.MAX_BYTES_OF_BACKWARD
    with chainer.using_config("enable_backprop", False), queued_calls(max_bytes):
        while pending.heap:
            function = heapq.heappop(pending.heap)[2]
            for node in _propagate(function, gradients, hooks):
                pending.add(node._creator_node)
            function.unchain()
            function._retained_output_data = None
        flush()  # also if the queue was open before
    return gradients


class _Pending:
    """Functions whose output has a gradient; those that forward called last come first."""

    def __init__(self, function: Any) -> None:
        self.heap: list[tuple[int, int, Any]] = []
        self._seen: set[Any] = set()
        self.add(function)

    def add(self, function: Any) -> None:
        if function is not None and function not in self._seen:
            heapq.heappush(self.heap, (-function.rank, len(self._seen), function))
            self._seen.add(function)


def _propagate(function: Any, gradients: Gradients, hooks: Any) -> list[Any]:
    """Compute the gradients of a function's inputs; returns the inputs that have one now."""
    outputs = [reference() for reference in function.outputs]  # kept alive: functions read them
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
            if node in gradients:  # an input that is passed twice has two totals
                flush()
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
    """Without queueing: hooks read arrays or measure time."""
    in_data = tuple([node.data for node in function.inputs])
    with immediate_calls():
        for hook in hooks:
            hook.backward_preprocess(function, in_data, tuple(found))
        totals = _accumulate(function, indexes, found, so_far)
        for hook in hooks:
            hook.backward_postprocess(function, in_data, tuple(found))
    return totals


def _accumulate(
    function: Any, indexes: list[int], found: list[Array | None], so_far: dict[int, Array]
) -> list[Array | None]:
    """The gradients of these inputs, added to those from other functions."""
    if not isinstance(function, Node):
        return _accumulate_by_chainer(function, tuple(indexes), found, so_far)
    if not function.needs_output:  # backward of the functions that use it has run
        function.outputs[0]()._data = None  # but not its shape
    gy = found[0]
    assert gy is not None  # only functions with a gradient are in the heap
    return function.accumulate(indexes, gy, so_far)


def _accumulate_by_chainer(
    function: Any, indexes: tuple[int, ...], found: list[Array | None], so_far: dict[int, Array]
) -> list[Array | None]:
    """As Node.accumulate, for functions that take and return variables."""
    flush()
    before = tuple([_variable(so_far.get(index)) for index in indexes])
    totals = function.backward_accumulate(indexes, tuple(map(_variable, found)), before)
    return [None if total is None else total.array for total in totals]


def _variable(array: Array | None) -> chainer.Variable | None:
    return None if array is None else chainer.as_variable(array)
