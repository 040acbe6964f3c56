"""The ONNX operators (opset 17) of each supported function of Chainer and edgeddl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.export.graph import Array, Graph
from edgeddl.functions.add import Add
from edgeddl.functions.average_pooling_2d import AveragePooling2D
from edgeddl.functions.batch_normalization import BatchNormalization
from edgeddl.functions.convolution_2d import Convolution2D
from edgeddl.functions.global_average_pooling_2d import GlobalAveragePooling2D
from edgeddl.functions.linear import Linear
from edgeddl.functions.max_pooling_2d import MaxPooling2D
from edgeddl.functions.normalized_convolution_2d import NormalizedConvolution2D
from edgeddl.functions.relu import ReLU

F = chainer.functions
arithmetic = F.math.basic_math


class Unsupported(Exception):
    """Which function, or which use of it, has no operator here."""


@dataclass(frozen=True)
class Call:
    """A call of a function: where its operators go, and its inputs by name and as arrays.

    shape: of the output. constant: gives an array that is not an input a name in the graph.
    """

    graph: Graph
    inputs: list[str]
    arrays: Sequence[Array]
    shape: tuple[int, ...]
    constant: Any

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append an operator on these inputs, by default on those of the function."""
        return self.graph.add(kind, *(inputs or self.inputs), **attributes)


@singledispatch
def add_operators(function: Any, call: Call) -> str:
    """Append the operators of a function; returns the name of the result."""
    raise Unsupported(type(function).__name__)


@add_operators.register(Convolution2D)
def _(function: Any, call: Call) -> str:
    geometry = (function.stride, function.pad, function.dilate)
    return _convolve(call, call.inputs, *geometry, function.groups)


@add_operators.register(F.connection.convolution_2d.Convolution2DFunction)
def _(function: Any, call: Call) -> str:
    stride, pad = (function.sy, function.sx), (function.ph, function.pw)
    return _convolve(call, call.inputs, stride, pad, (function.dy, function.dx), function.groups)


@add_operators.register(NormalizedConvolution2D)
def _(function: Any, call: Call) -> str:
    x, W, gamma, beta = call.inputs
    y = call.add("Relu", _normalise(function, call, x, gamma, beta))
    geometry = (function.stride, function.pad, function.dilate)
    return _convolve(call, [y, W], *geometry, function.groups)


@add_operators.register(BatchNormalization)
def _(function: Any, call: Call) -> str:
    y = _normalise(function, call, *call.inputs[:3])
    if len(call.inputs) == 4:
        return call.add("Relu", call.add("Add", y, call.inputs[3]))
    return call.add("Relu", y) if function.relu else y


@add_operators.register(F.normalization.batch_normalization.FixedBatchNormalization)
def _(function: Any, call: Call) -> str:
    if tuple(function.key_axis) != (1,):
        raise Unsupported(f"FixedBatchNormalization with axis={function.axis}")
    return call.add("BatchNormalization", epsilon=float(function.eps))


@add_operators.register(F.normalization.batch_normalization.BatchNormalization)
def _(function: Any, call: Call) -> str:
    raise Unsupported("BatchNormalization with the statistics of the batch")


@add_operators.register(MaxPooling2D)
@add_operators.register(AveragePooling2D)
def _(function: Any, call: Call) -> str:
    size, stride, pad = _window(function.window)
    return _pool(call, isinstance(function, MaxPooling2D), size, stride, pad)


@add_operators.register(F.pooling.average_pooling_2d.AveragePooling2D)
def _(function: Any, call: Call) -> str:
    return _pool(call, False, *_window(function))


@add_operators.register(F.pooling.max_pooling_nd.MaxPoolingND)
def _(function: Any, call: Call) -> str:
    return _pool(call, True, function.ksize, function.stride, function.pad)


@add_operators.register(F.pooling.average_pooling_nd.AveragePoolingND)
def _(function: Any, call: Call) -> str:
    counts_padding = function.pad_value is not None
    return _pool(call, False, function.ksize, function.stride, function.pad, counts_padding)


@add_operators.register(GlobalAveragePooling2D)
def _(function: Any, call: Call) -> str:
    return call.add("Flatten", call.add("GlobalAveragePool"), axis=1)


@add_operators.register(Linear)
@add_operators.register(F.connection.linear.LinearFunction)
def _(function: Any, call: Call) -> str:
    return call.add("Gemm", transB=1)


@add_operators.register(F.math.average.Mean)
@add_operators.register(F.math.sum.Sum)
def _(function: Any, call: Call) -> str:
    keepdims = int(function.keepdims)
    axes = _inner_axes(function, function.axis, call)
    if isinstance(function, F.math.average.Mean):
        return call.add("ReduceMean", axes=axes, keepdims=keepdims)
    return call.add(
        "ReduceSum", *call.inputs, call.constant(np.array(axes, np.int64)), keepdims=keepdims
    )


@add_operators.register(F.array.reshape.Reshape)
@add_operators.register(F.array.squeeze.Squeeze)
@add_operators.register(F.array.expand_dims.ExpandDims)
def _(function: Any, call: Call) -> str:
    """The batch axis has any size: 0 stands for the size that the input has."""
    if not call.shape or call.shape[0] != call.arrays[0].shape[0]:
        raise Unsupported(f"{type(function).__name__} of the batch axis")
    return call.add(
        "Reshape", *call.inputs, call.constant(np.array([0, *call.shape[1:]], np.int64))
    )


@add_operators.register(F.array.transpose.Transpose)
def _(function: Any, call: Call) -> str:
    count = call.arrays[0].ndim
    axes = range(count)[::-1] if function.axes is None else function.axes
    if axes[0] % count != 0:
        raise Unsupported("Transpose of the batch axis")
    return call.add("Transpose", perm=[axis % count for axis in axes])


@add_operators.register(F.array.concat.Concat)
def _(function: Any, call: Call) -> str:
    (axis,) = _inner_axes(function, (function.axis,), call)
    return call.add("Concat", axis=axis)


@add_operators.register(F.activation.softmax.Softmax)
def _(function: Any, call: Call) -> str:
    (axis,) = _inner_axes(function, (function.axis,), call)
    return call.add("Softmax", axis=axis)


@add_operators.register(F.activation.leaky_relu.LeakyReLU)
def _(function: Any, call: Call) -> str:
    return call.add("LeakyRelu", alpha=float(function.slope))


@add_operators.register(F.activation.clipped_relu.ClippedReLU)
def _(function: Any, call: Call) -> str:
    limits = (call.constant(np.float32(limit)) for limit in (0, function.cap))
    return call.add("Clip", *call.inputs, *limits)


@add_operators.register(arithmetic.AddConstant)
@add_operators.register(arithmetic.MulConstant)
def _(function: Any, call: Call) -> str:
    kind = "Add" if isinstance(function, arithmetic.AddConstant) else "Mul"
    return call.add(kind, *call.inputs, call.constant(np.float32(function.value)))


# Functions that have the inputs and the meaning of one operator.
SAME = {
    Add: "Add",
    ReLU: "Relu",
    F.activation.relu.ReLU: "Relu",
    F.activation.sigmoid.Sigmoid: "Sigmoid",
    F.activation.tanh.Tanh: "Tanh",
    arithmetic.Add: "Add",
    arithmetic.MultiAdd: "Sum",
    arithmetic.Mul: "Mul",
    arithmetic.Sub: "Sub",
    F.math.identity.Identity: "Identity",
}


def _add_same(function: Any, call: Call) -> str:
    return call.add(next(SAME[kind] for kind in type(function).__mro__ if kind in SAME))


for _kind in SAME:
    add_operators.register(_kind, _add_same)


def _normalise(function: Any, call: Call, x: str, gamma: str, beta: str) -> str:
    if not function.fixed:
        raise Unsupported("BatchNormalization with the statistics of the batch")
    statistics = (call.constant(array) for array in function.statistics)
    return call.add("BatchNormalization", x, gamma, beta, *statistics, epsilon=float(function.eps))


def _convolve(
    call: Call, inputs: list[str], stride: Any, pad: Any, dilate: Any, groups: int
) -> str:
    size = call.arrays[1].shape[2:]
    geometry = _geometry(call, size, stride, pad, dilate)
    return call.add("Conv", *inputs, **geometry, dilations=[*map(int, dilate)], group=int(groups))


def _pool(
    call: Call, is_max: bool, size: Any, stride: Any, pad: Any, counts_padding: bool = True
) -> str:
    geometry = _geometry(call, size, stride, pad, [1] * len(size))
    if any(end >= k for end, k in zip(geometry["pads"][len(size) :], size, strict=True)):
        raise Unsupported("pooling with windows outside of the image")
    if is_max:
        return call.add("MaxPool", **geometry)
    return call.add("AveragePool", **geometry, count_include_pad=int(counts_padding))


def _geometry(call: Call, size: Any, stride: Any, pad: Any, dilate: Any) -> dict[str, list[int]]:
    """Attributes of a window that moves over an image.

    With Chainer's `cover_all`, the last window extends beyond the padding. The padding at the end
    is increased to contain it, because runtimes differ in how they apply ONNX's ceil_mode.
    """
    images, results = call.arrays[0].shape[2:], call.shape[2:]
    ends = [
        max(p, (result - 1) * s + (k - 1) * d + 1 - image - p)
        for image, result, k, s, p, d in zip(
            images, results, size, stride, pad, dilate, strict=True
        )
    ]
    return {
        "kernel_shape": [*map(int, size)],
        "strides": [*map(int, stride)],
        "pads": [*map(int, pad), *map(int, ends)],
    }


def _window(window: Any) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    return (window.kh, window.kw), (window.sy, window.sx), (window.ph, window.pw)


def _inner_axes(function: Any, axes: Any, call: Call) -> list[int]:
    """Axes counted from 0; raises if one of them is the batch axis."""
    count = call.arrays[0].ndim
    found = [axis % count for axis in (range(count) if axes is None else axes)]
    if 0 in found:
        raise Unsupported(f"{type(function).__name__} over the batch axis")
    return found
