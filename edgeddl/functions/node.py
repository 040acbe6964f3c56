"""The base class of edgeddl's Chainer functions, and their fallback to Chainer.

Each is a FunctionNode over the kernels with the name, arguments and results of Chainer's own. They
differ in three ways: results are channels last in memory, gradients of parameters go through the
gradient sink, and there is no second derivative.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from edgeddl.chainer_compat import F, chainer
from edgeddl.config import kernel_choice
from edgeddl.functions import gradient_sink, read_barrier
from edgeddl.kernels import call_queue
from edgeddl.kernels.call_queue import call_in_order, flush, immediate_calls, queue
from edgeddl.kernels.checks import is_plain

Array = np.ndarray
Pair = int | tuple[int, int]
Variable, VariableNode = chainer.Variable, chainer.variable.VariableNode

_FLOAT32 = np.dtype(np.float32)

# Arrays of at least this size are recomputed instead of kept; for smaller ones memory suffices.
LARGE = 16 << 20


@contextmanager
def scaled_limits(factor: float) -> Iterator[None]:
    """Within the block a small batch keeps what a batch larger by 1 / factor would keep."""
    global LARGE
    before, LARGE = LARGE, int(LARGE * factor)
    try:
        with call_queue.scaled_limits(factor):
            yield
    finally:
        LARGE = before


class Node(chainer.FunctionNode):
    """A function with one output whose gradients are computed by kernels."""

    # By input: the sum of the gradients from other functions so far. A kernel that can add to it
    # removes it from here; the rest is added afterwards.
    so_far: dict[int, Array]

    # Whether `output_again` can recompute the output: functions that use it need not keep it.
    recomputable = False
    # Whether backward reads the array of the output.
    needs_output = False

    # By input: the function that recomputes it, if it is retained but not kept.
    sources: dict[int, Any]
    outputs: tuple[Callable[[], Any], ...]
    _input_indexes_to_retain: tuple[int, ...] | None
    _output_indexes_to_retain: tuple[int, ...] | None
    _retained_output_data: tuple[Array, ...]

    def apply(self, inputs: tuple[Any, ...]) -> tuple[chainer.Variable]:
        """As Chainer's, but for NumPy arrays only, in a third of the time.

        Attributes are accessed directly, not by Chainer's properties: after a kernel the caches
        hold activations, and the time depends on how much code has to be fetched. In debug mode
        Chainer's method runs.
        """
        barrier = read_barrier.current.barrier
        if barrier is not None:
            barrier(inputs)
        if setting("debug"):
            with immediate_calls():  # Chainer reads all results
                return super().apply(inputs)
        hooks = chainer.get_function_hooks().values()
        nodes, arrays, requires_grad = [], [], False
        for value in inputs:
            variable = value if isinstance(value, Variable) else chainer.as_variable(value)
            nodes.append(variable._node)
            arrays.append(variable._data[0])
            requires_grad = requires_grad or variable._requires_grad
        in_data = tuple(arrays)
        self._input_indexes_to_retain = self._output_indexes_to_retain = None
        if hooks:
            array = self._forward_with_hooks(in_data, hooks)
        else:
            (array,) = self.forward(in_data)
        output = _make_variable(array, requires_grad)
        if setting("enable_backprop"):
            self._join_graph(tuple(nodes), output._node)
            self.keep(in_data)
            if self._output_indexes_to_retain:
                output.retain_data()
                self._retained_output_data = (array,)
        return (output,)

    def _forward_with_hooks(self, in_data: tuple[Array, ...], hooks: Any) -> Array:
        """Without queueing: hooks read arrays or measure time."""
        with immediate_calls():
            for hook in hooks:
                hook.forward_preprocess(self, in_data)
            (array,) = self.forward(in_data)
            for hook in hooks:
                hook.forward_postprocess(self, in_data)
        return array

    def _join_graph(self, inputs: tuple[Any, ...], output: Any) -> None:
        rank = 0
        for node in inputs:
            if node._rank > rank:
                rank = node._rank
        self.rank, self.inputs, self.outputs = rank, inputs, (weakref.ref(output),)
        self._output_count = 1
        output._creator_node, output._rank = self, rank + 1

    def keep(self, arrays: tuple[Array, ...]) -> None:
        """Keep the inputs that backward needs, except those to recompute."""
        self.sources = {}
        for index in self._input_indexes_to_retain or ():
            node = self.inputs[index]
            creator = node._creator_node
            if isinstance(creator, Node) and creator.recomputable and self.drops(index, arrays):
                self.sources[index] = creator
            else:
                node._data = arrays[index]

    def drops(self, index: int, arrays: tuple[Array, ...]) -> bool:
        """Whether to recompute this input, which is recomputable, instead of keeping it."""
        return arrays[index].nbytes >= LARGE

    def backward_accumulate(
        self, indexes: tuple[int, ...], grad_outputs: Any, grad_inputs: Any
    ) -> tuple[Any, ...]:
        """For Chainer's backward, which passes and expects variables."""
        if chainer.config.enable_backprop:
            name = type(self).__name__
            raise NotImplementedError(
                f"{name} of edgeddl has no second derivative (enable_double_backprop, or "
                "chainer.grad with it); use chainer.functions for it"
            )
        found = zip(indexes, grad_inputs, strict=True)
        with immediate_calls():  # Chainer adds them and passes them to its own functions
            so_far = {index: _aligned(g.array) for index, g in found if g is not None}
            totals = self.accumulate(indexes, _aligned(grad_outputs[0].array), so_far)
        return tuple(None if total is None else chainer.as_variable(total) for total in totals)

    def accumulate(
        self, indexes: Sequence[int], gy: Array, so_far: dict[int, Array]
    ) -> list[Array | None]:
        """The gradients of these inputs, added to those from other functions."""
        self.so_far = so_far
        gradients, totals = self.gradients(set(indexes), gy), []
        for index in indexes:
            gradient, before = gradients[index], so_far.pop(index, None)
            if gradient is None or before is None:
                totals.append(before if gradient is None else gradient)
            else:
                flush()
                totals.append(gradient + before)
        return totals

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        """A gradient for each input whose index is wanted; the others are ignored.

        Compute those of parameters first, in the order in which they should be sent.
        """
        raise NotImplementedError

    def view_for(self, index: int) -> Array | None:
        """The sink's array for the gradient of this input; None: allocate a new one."""
        sink, parameter = gradient_sink.current.sink, self.inputs[index]._variable()
        return None if sink is None or parameter is None else sink.view_for(parameter)

    def ready(self, index: int, view: Array | None) -> None:
        """Notify the sink once its view for this input, if it has one, holds the gradient."""
        if view is not None:
            sink = gradient_sink.current.sink
            assert sink is not None
            call_in_order(sink.ready, self.inputs[index]._variable())

    def retained(self) -> list[Array]:
        """The arrays of the retained inputs."""
        return [self.retained_input(index) for index in self._input_indexes_to_retain or ()]

    def retained_input(self, index: int) -> Array:
        """The array of a retained input."""
        array = self.inputs[index]._data
        return self.sources[index].output_again() if array is None else array

    def output_again(self) -> Array:
        """The output of a recomputable function, which was not kept."""
        raise NotImplementedError

    def retained_output(self) -> Array:
        """The array of the output, which was retained."""
        return self._retained_output_data[0]


class _QueuedVariable(chainer.Variable):
    """A variable whose array queued kernels may still have to write: reading it runs them."""

    @property
    def raw_array(self) -> Any:
        flush()
        return super().raw_array

    def __copy__(self) -> Any:  # a plain variable
        flush()
        return super().__copy__()


def _make_variable(array: Array, requires_grad: bool) -> Any:
    """chainer.Variable(array, requires_grad=...), without its ten function calls."""
    kind = _QueuedVariable if queue.open else Variable
    variable, node = kind.__new__(kind), VariableNode.__new__(VariableNode)
    variable._requires_grad = node._requires_grad = requires_grad
    variable._loss_scale = variable._grad_var = variable._device = node.name = None
    variable._grad_valid = True
    variable._data = [array]
    variable._node = node
    node._variable = weakref.ref(variable)
    node.dtype, node.shape = array.dtype, array.shape
    return variable


def _aligned(gradient: Array) -> Array:
    return gradient if gradient.flags.aligned else gradient.copy()


def array_of(value: Any) -> Any:
    """chainer.as_array, without the property."""
    return value._data[0] if isinstance(value, Variable) else value


_settings_of_thread = chainer.config._local
_settings_of_all = chainer.global_config


def setting(name: str) -> Any:
    """chainer.config.<name>; that takes four times as long after a kernel, 25 us."""
    own = _settings_of_thread.__dict__
    return own[name] if name in own else getattr(_settings_of_all, name)


def pair(value: Pair) -> tuple[int, int]:
    """One number for both directions, or one for each, as in Chainer."""
    if type(value) is tuple and len(value) == 2:  # the usual case: links store tuples
        return value
    first, second = value if hasattr(value, "__getitem__") else (value, value)  # type: ignore
    return first, second


# Chainer's own functions: an accelerated model replaces those in chainer.functions.
stock = SimpleNamespace(**vars(F))

CHAINER_REQUESTED = kernel_choice() == "chainer"

_warned: set[tuple[str, str]] = set()


def falls_back_to_chainer(function: str, reason: str | None) -> bool:
    """Whether to use Chainer's own function: on request, or for a reason, with one warning."""
    if reason and not CHAINER_REQUESTED and (function, reason) not in _warned:
        _warned.add((function, reason))
        warnings.warn(
            f"{function} with {reason} falls back to Chainer: this is slower, and gradients of its "
            "parameters are sent only after the backward pass",
            stacklevel=3,
        )
    return CHAINER_REQUESTED or reason is not None


def unsupported_arrays(*inputs: Any) -> str | None:
    """Why the kernels cannot take these inputs, if they cannot."""
    for value in inputs:
        if value is None:
            continue
        array = value
        if isinstance(value, Variable):
            if value._layout is not None:
                return f"memory layout {value._layout}"
            array = value._data[0]
        if is_plain(array):  # the usual case
            continue
        if not isinstance(array, np.ndarray):
            return f"arrays of {type(array).__module__}"
        if array.dtype != _FLOAT32:
            return f"{array.dtype} numbers"
        if not array.flags.aligned:
            return "arrays that are not aligned in memory"
    return None
