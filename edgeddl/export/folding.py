"""Folds batch normalisation into the convolution or linear layer before it."""

from __future__ import annotations

import numpy as np

from edgeddl.export.graph import Array, Graph, Operator


def fold_batch_norm(graph: Graph) -> int:
    """Fold every batch normalisation that directly follows a layer; returns their number.

    A normalisation whose input has other users, or that follows something else, stays.
    """
    layers = {
        operator.output: operator
        for operator in graph.operators
        if operator.type in ("Conv", "Gemm") and operator.inputs[1] in graph.constants
    }
    folded = 0
    for operator in list(graph.operators):
        source = operator.inputs[0]
        is_candidate = operator.type == "BatchNormalization" and source in layers
        if is_candidate and graph.users(source) == [operator]:
            layer = layers[source]
            _fold(graph, layer, operator)
            graph.operators.remove(operator)
            layer.output = operator.output
            folded += 1
    graph.remove_unused_constants()
    return folded


def _fold(graph: Graph, layer: Operator, normalization: Operator) -> None:
    """Replace the constants of the layer: W' = W s, b' = (b - mean) s + beta.

    s = gamma / sqrt(var + eps). Computed in float64, so that the constants are rounded once.
    """
    gamma, beta, mean, var = (_double(graph, name) for name in normalization.inputs[1:])
    _, weight, *bias = layer.inputs
    W = _double(graph, weight)
    b = _double(graph, bias[0]) if bias else np.zeros_like(beta)
    scale = gamma / np.sqrt(var + normalization.attributes["epsilon"])
    values = {
        f"{weight}_folded_{layer.output}": W * scale.reshape(-1, *[1] * (W.ndim - 1)),
        f"{weight}_shift_{layer.output}": (b - mean) * scale + beta,
    }
    names = [graph.constant(value.astype(np.float32), name) for name, value in values.items()]
    layer.inputs = [layer.inputs[0], *names]


def _double(graph: Graph, name: str) -> Array:
    return graph.constants[name].astype(np.float64)
