"""Turns a Chainer model into a graph of ONNX operators by running it.

A function hook records every function of a forward pass with its arrays. Functions that depend on
the image become operators. Everything else, such as a transposed weight, is a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.errors import ConfigError
from edgeddl.export.graph import Array, Graph
from edgeddl.export.operators import Call, Unsupported, add_operators
from edgeddl.training.parameters import named_parameters
from edgeddl.training.statistics import RunningStatistics

INPUT = "images"


class _Recorder(chainer.FunctionHook):
    """Records functions in the order of their calls, with the arrays of their inputs."""

    name = "edgeddl-export"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Array, ...]]] = []

    def forward_postprocess(self, function: Any, in_data: tuple[Array, ...]) -> None:
        self.calls.append((function, in_data))


def trace(model: Any, image_shape: tuple[int, ...]) -> Graph:
    """The graph of a model in test mode, for batches of any size.

    Two batches that differ in size and pixels must give the same graph. If they do not, the model
    computes a part of its result from arrays, which Chainer does not record, or uses their size.
    """
    random = np.random.default_rng(0)
    graph, other = (
        _trace(model, random.standard_normal((size, *image_shape), np.float32)) for size in (2, 3)
    )
    if not graph.equals(other):
        raise ConfigError(
            "ONNX export needs a model whose functions do not depend on the images: this one"
            " gives different graphs for two batches",
            hint="use Chainer's functions on variables instead of NumPy's on their arrays",
        )
    return graph


def _trace(model: Any, images: Array) -> Graph:
    image = chainer.Variable(images)
    recorder = _Recorder()
    # Chainer connects functions to their inputs only if backpropagation is enabled.
    with chainer.using_config("train", False), chainer.force_backprop_mode(), recorder:
        result = model(image)
    graph, names = Graph(INPUT, ""), {id(image.node): INPUT}
    array_names = _array_names(model)

    def add_constant(array: Array) -> str:
        return graph.constant(array, array_names.get(id(array), ""))

    unsupported: dict[str, None] = {}
    for function, arrays in recorder.calls:
        if not any(id(node) in names for node in function.inputs):
            continue
        inputs = [
            names.get(id(node)) or add_constant(array)
            for node, array in zip(function.inputs, arrays, strict=True)
        ]
        outputs = [output for reference in function.outputs if (output := reference()) is not None]
        try:
            if len(function.outputs) > 1:
                raise Unsupported(type(function).__name__)
            for output in outputs:
                call = Call(graph, inputs, arrays, output.shape, add_constant)
                names[id(output)] = add_operators(function, call)
        except Unsupported as problem:
            unsupported[str(problem)] = None
            names |= {id(output): "unsupported" for output in outputs}
    if unsupported:
        raise ConfigError(
            f"ONNX export does not support these functions of the model: {', '.join(unsupported)}",
            hint="replace them in the model, or export to .npz or .safetensors",
        )
    if id(result.node) not in names:
        raise ConfigError("the output of the model does not depend on its input")
    graph.output = names[id(result.node)]
    return graph


def _array_names(model: Any) -> dict[int, str]:
    """Names of parameters and running statistics by the identity of their arrays."""
    parameters = {name: parameter.array for name, parameter in named_parameters(model).items()}
    arrays = parameters | RunningStatistics(model).arrays()
    return {id(array): name for name, array in arrays.items()}
