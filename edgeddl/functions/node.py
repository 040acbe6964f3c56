"""What edgeddl's Chainer functions have in common.

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
from edgeddl.kernels import deferral
from edgeddl.kernels.checks import is_plain
from edgeddl.kernels.deferral import after, at_once, finish, queue

Array = np.ndarray
Pair = int | tuple[int, int]
Variable, VariableNode = chainer.Variable, chainer.variable.VariableNode

_FLOAT32 = np.dtype(np.float32)

# From this size on, arrays are rather computed again than kept: for small ones memory suffices.
LARGE = 16 << 20


@contextmanager
def scaled_limits(factor: float) -> Iterator[None]:
    """Within the block a small batch keeps what one that is larger by 1 / factor would keep."""
    global LARGE
    before, LARGE = LARGE, int(LARGE * factor)
    try:
        with deferral.scaled_limits(factor):
            yield
    finally:
        LARGE = before


class Node(chainer.FunctionNode):
    """A function of one output whose gradients are computed by kernels."""

    # By input: the sum of the gradients that other functions have found for it so far. A kernel
    # that can add to it takes it out; the rest is added afterwards.
    so_far: dict[int, Array]

    # Whether `output_again` can give the output, so that functions that retain it need not keep it.
    recomputable = False
    # Whether backward reads the array of the output.
    needs_output = False

    # By input: the function that computes it again, for one that is retained but not kept.
    sources: dict[int, Any]
    outputs: tuple[Callable[[], Any], ...]
    _input_indexes_to_retain: tuple[int, ...] | None
    _output_indexes_to_retain: tuple[int, ...] | None
    _retained_output_data: tuple[Array, ...]

    def apply(self, inputs: tuple[Any, ...]) -> tuple[chainer.Variable]:
        """As Chainer's, but for NumPy arrays only, which takes it a third of the time.

        Attributes are taken as they are, not by Chainer's properties: after a kernel the caches are
        empty, and what counts is how much code there is to be fetched. The debug mode is left to
        Chainer's.
        """
        barrier = read_barrier.current.barrier
        if barrier is not None:
            barrier(inputs)
        if setting("debug"):
            with at_once():  # Chainer looks at all results
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
        """At once: hooks look at arrays, or at the time."""
        with at_once():
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
        """Keep the inputs that backward needs, but for those that can be computed again."""
        self.sources = {}
        for index in self._input_indexes_to_retain or ():
            node = self.inputs[index]
            creator = node._creator_node
            if isinstance(creator, Node) and creator.recomputable and self.leaves(index, arrays):
                self.sources[index] = creator
            else:
                node._data = arrays[index]

    def leaves(self, index: int, arrays: tuple[Array, ...]) -> bool:
        """Whether not to keep this input, which can be computed again."""
        return arrays[index].nbytes >= LARGE

    def backward_accumulate(
        self, indexes: tuple[int, ...], grad_outputs: Any, grad_inputs: Any
    ) -> tuple[Any, ...]:
        """For Chainer's backward, which takes and gives variables."""
        if chainer.config.enable_backprop:
            name = type(self).__name__
            raise NotImplementedError(
                f"{name} of edgeddl has no second derivative (enable_double_backprop, or "
                "chainer.grad with it); chainer.functions has"
            )
        found = zip(indexes, grad_inputs, strict=True)
        with at_once():  # Chainer adds them, and shows them to its own functions
            so_far = {index: _aligned(g.array) for index, g in found if g is not None}
            totals = self.accumulate(indexes, _aligned(grad_outputs[0].array), so_far)
        return tuple(None if total is None else chainer.as_variable(total) for total in totals)

    def accumulate(
        self, indexes: Sequence[int], gy: Array, so_far: dict[int, Array]
    ) -> list[Array | None]:
        """The gradients of these inputs, added to those found so far."""
        self.so_far = so_far
        gradients, totals = self.gradients(set(indexes), gy), []
        for index in indexes:
            gradient, before = gradients[index], so_far.pop(index, None)
            if gradient is None or before is None:
                totals.append(before if gradient is None else gradient)
            else:
                finish()
                totals.append(gradient + before)
        return totals

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        """A gradient for each input whose index is wanted; of the others, nothing counts.

        Those of parameters first, in the order in which they are to be sent.
        """
        raise NotImplementedError

    def view_for(self, index: int) -> Array | None:
        """Where the sink wants the gradient of this input; None if it is to be a new array."""
        sink, parameter = gradient_sink.current.sink, self.inputs[index]._variable()
        return None if sink is None or parameter is None else sink.view_for(parameter)

    def ready(self, index: int, view: Array | None) -> None:
        """Tell the sink when the view it gave for this input, if it did, holds the gradient."""
        if view is not None:
            sink = gradient_sink.current.sink
            assert sink is not None
            after(sink.ready, self.inputs[index]._variable())

    def retained(self) -> list[Array]:
        """The arrays of the retained inputs."""
        return [self.retained_input(index) for index in self._input_indexes_to_retain or ()]

    def retained_input(self, index: int) -> Array:
        """The array of a retained input."""
        array = self.inputs[index]._data
        return self.sources[index].output_again() if array is None else array

    def output_again(self) -> Array:
        """The output of a recomputable function, which nobody kept."""
        raise NotImplementedError

    def retained_output(self) -> Array:
        """The array of the output, which was retained."""
        return self._retained_output_data[0]


class _DeferredVariable(chainer.Variable):
    """A variable whose array kernels may have to write yet: whoever asks for it has them run."""

    @property
    def raw_array(self) -> Any:
        finish()
        return super().raw_array

    def __copy__(self) -> Any:  # a plain variable
        finish()
        return super().__copy__()


def _make_variable(array: Array, requires_grad: bool) -> Any:
    """chainer.Variable(array, requires_grad=...), without the ten calls that this takes."""
    kind = _DeferredVariable if queue.open else Variable
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
    """chainer.as_array, past the property."""
    return value._data[0] if isinstance(value, Variable) else value


_settings_of_thread = chainer.config._local
_settings_of_all = chainer.global_config


def setting(name: str) -> Any:
    """As chainer.config.<name>, which after a kernel takes four times as long, 25 us."""
    own = _settings_of_thread.__dict__
    return own[name] if name in own else getattr(_settings_of_all, name)


def pair(value: Pair) -> tuple[int, int]:
    """One number for both directions, or one for each, as Chainer takes them."""
    if type(value) is tuple and len(value) == 2:  # as links have them
        return value
    first, second = value if hasattr(value, "__getitem__") else (value, value)  # type: ignore
    return first, second


# Chainer's own functions: in an accelerated model, chainer.functions has others in their place.
stock = SimpleNamespace(**vars(F))

CHAINER_ASKED = kernel_choice() == "chainer"

_warned: set[tuple[str, str]] = set()


def left_to_chainer(function: str, reason: str | None) -> bool:
    """Whether to use Chainer's own function: asked for, or for a reason, which is said once."""
    if reason and not CHAINER_ASKED and (function, reason) not in _warned:
        _warned.add((function, reason))
        warnings.warn(
            f"{function} with {reason} is left to Chainer: slower, and gradients of its parameters "
            "are sent only when backward has ended",
            stacklevel=3,
        )
    return CHAINER_ASKED or reason is not None


def foreign(*inputs: Any) -> str | None:
    """Why the kernels cannot take these inputs, if they cannot."""
    for value in inputs:
        if value is None:
            continue
        array = value
        if isinstance(value, Variable):
            if value._layout is not None:
                return f"memory layout {value._layout}"
            array = value._data[0]
        if is_plain(array):  # as they mostly are
            continue
        if not isinstance(array, np.ndarray):
            return f"arrays of {type(array).__module__}"
        if array.dtype != _FLOAT32:
            return f"{array.dtype} numbers"
        if not array.flags.aligned:
            return "arrays that are not aligned in memory"
    return None
