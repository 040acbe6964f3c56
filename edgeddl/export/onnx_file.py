"""A trained model as an ONNX file: normalisation, network, softmax, and a description."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl import __version__
from edgeddl.errors import ConfigError
from edgeddl.export.description import describe
from edgeddl.export.folding import fold_batch_norm
from edgeddl.export.graph import Graph
from edgeddl.export.tracing import INPUT, trace
from edgeddl.inference import TrainedModel

try:
    import onnx
except ImportError as error:
    raise ConfigError(
        f"export to .onnx needs the package onnx, which cannot be imported: {error}",
        hint="run pip install 'edgeddl[export]'",
    ) from None

# Opset 17 and IR 8 (2022): read by onnxruntime from 1.12 on, and by older converters.
OPSET, IR_VERSION = 17, 8
BATCH = "batch"
# --include-normalisation: what the exported network takes as input.
PIXELS, FRACTIONS = "uint8", "float"


def render_onnx(
    trained: TrainedModel,
    *,
    fold: bool = False,
    softmax: bool = False,
    normalisation: str | None = None,
) -> bytes:
    """The content of the file for an `edgeddl.inference` model.

    normalisation: None takes normalised images; "uint8" takes pixels (n, height, width, channels),
    "float" pixels from 0 to 1 (n, channels, height, width). Both are normalised in the graph.
    """
    graph = trace(trained.model, trained.image_shape)
    if fold:
        fold_batch_norm(graph)
    if softmax:
        graph.output = graph.add("Softmax", graph.output, output="probabilities", axis=1)
    else:
        graph.rename_output("logits")
    if normalisation is not None:
        _prepend_normalisation(graph, normalisation, trained.mean, trained.std)
    model = _build(graph, trained, normalisation)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _prepend_normalisation(graph: Graph, kind: str, mean: Any, std: Any) -> None:
    """Insert (x - mean) / std before the network, as data.images.Normaliser computes it."""
    users, network = graph.users(INPUT), graph.operators
    graph.operators = []
    x = INPUT
    if kind == PIXELS:
        x = graph.add("Cast", x, output="pixels", to=onnx.TensorProto.FLOAT)
        x = graph.add("Transpose", x, output="channels_first", perm=[0, 3, 1, 2])
    largest = 255 if kind == PIXELS else 1
    scale, shift = 1 / (largest * np.asarray(std)), -np.asarray(mean) / np.asarray(std)
    for operator, name, value in (("Mul", "scale", scale), ("Add", "shift", shift)):
        column = graph.constant(np.float32(value).reshape(1, -1, 1, 1), f"normalisation_{name}")
        x = graph.add(operator, x, column, output=f"normalisation_{operator.lower()}")
    for user in users:
        user.inputs = [x if name == INPUT else name for name in user.inputs]
    graph.operators += network


def _build(graph: Graph, trained: TrainedModel, normalisation: str | None) -> Any:
    channels, height, width = trained.image_shape
    helper, types = onnx.helper, onnx.TensorProto
    pixels = normalisation == PIXELS
    shape = (height, width, channels) if pixels else (channels, height, width)
    images = helper.make_tensor_value_info(
        INPUT, types.UINT8 if pixels else types.FLOAT, [BATCH, *shape]
    )
    scores = helper.make_tensor_value_info(graph.output, types.FLOAT, [BATCH, len(trained.classes)])
    content = helper.make_graph(
        [
            helper.make_node(one.type, one.inputs, [one.output], name=one.output, **one.attributes)
            for one in graph.operators
        ],
        "edgeddl",
        [images],
        [scores],
        [onnx.numpy_helper.from_array(value, name) for name, value in graph.constants.items()],
    )
    model = helper.make_model(
        content,
        producer_name="edgeddl",
        producer_version=__version__,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(model, describe(trained) | {"input": _describe_input(normalisation)})
    return model


def _describe_input(normalisation: str | None) -> str:
    return {
        None: "float32 (n, channels, height, width): (pixel / 255 - mean) / std",
        PIXELS: "uint8 (n, height, width, channels): pixels from 0 to 255",
        FRACTIONS: "float32 (n, channels, height, width): pixels from 0 to 1",
    }[normalisation]
