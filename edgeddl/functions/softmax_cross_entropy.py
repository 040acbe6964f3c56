"""Softmax cross-entropy, as chainer.functions.softmax_cross_entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl import kernels
from edgeddl.chainer_compat import chainer
from edgeddl.errors import KernelError
from edgeddl.functions.node import Array, Node, falls_back_to_chainer, stock, unsupported_arrays
from edgeddl.kernels.call_queue import flush


class SoftmaxCrossEntropy(Node):
    """The mean cross-entropy between softmax(x) and labels; forward computes its gradient, too."""

    gradient: Array
    x: Array

    def __init__(
        self, t: Array, smoothing: float, ignore_label: int, cache_score: bool = True
    ) -> None:
        super().__init__()
        self.t, self.smoothing, self.ignore_label = t, smoothing, ignore_label
        self.cache_score = cache_score

    @property
    def y(self) -> Array | None:
        """The softmax of x, computed on access, as loss.creator.y in Chainer."""
        flush()
        return stock.softmax(self.x).array if self.cache_score else None

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        (self.x,) = inputs
        loss, self.gradient = kernels.softmax_cross_entropy(
            inputs[0], self.t, self.smoothing, self.ignore_label
        )
        return (np.asarray(loss, np.float32),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array]:
        flush()
        return (self.gradient * gy,)


def softmax_cross_entropy(
    x: Any,
    t: Any,
    normalize: bool = True,
    cache_score: bool = True,
    class_weight: Any = None,
    ignore_label: int = -1,
    reduce: str = "mean",
    enable_double_backprop: bool = False,
    soft_target_loss: str = "cross-entropy",
) -> Any:
    """Mean cross-entropy of logits x (N, M) and labels t (N,), without rows to ignore."""
    unusual = {
        "normalize=False": not normalize,
        "class_weight": class_weight is not None,
        f"reduce={reduce!r}": reduce != "mean",
        "enable_double_backprop": enable_double_backprop,
    }
    reason = next((name for name, given in unusual.items() if given), None)
    if falls_back_to_chainer("softmax_cross_entropy", reason or _unsupported(x, t)):
        return stock.softmax_cross_entropy(
            x,
            t,
            normalize,
            cache_score,
            class_weight,
            ignore_label,
            reduce,
            enable_double_backprop,
            soft_target_loss,
        )
    return SoftmaxCrossEntropy(_labels(t), 0.0, ignore_label, cache_score).apply((x,))[0]


def smoothed_softmax_cross_entropy(x: Any, t: Any, smoothing: float) -> Any:
    """Mean cross-entropy against 1 - smoothing on the label plus smoothing / M on every class."""
    if falls_back_to_chainer("smoothed_softmax_cross_entropy", _unsupported(x, t)):
        uniform = -stock.average(stock.log_softmax(x))
        return (1 - smoothing) * stock.softmax_cross_entropy(x, t) + smoothing * uniform
    return SoftmaxCrossEntropy(_labels(t), smoothing, -1).apply((x,))[0]


def _labels(t: Any) -> Array:
    labels = chainer.as_array(t)
    narrow = labels.astype(np.int32, copy=not labels.flags.aligned)
    if narrow is not labels and not np.array_equal(narrow, labels):
        raise KernelError("labels must be int32, or integers within its range")
    return narrow


def _unsupported(x: Any, t: Any) -> str | None:
    if x.ndim != 2:
        return f"{x.ndim}-dimensional input"
    labels = chainer.as_array(t)
    return f"{labels.dtype} labels" if labels.dtype.kind != "i" else unsupported_arrays(x)
