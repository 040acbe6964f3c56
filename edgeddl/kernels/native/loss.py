"""Softmax cross-entropy with its gradient, in C."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.deferral import finish
from edgeddl.kernels.layout import Array
from edgeddl.kernels.native.library import load

_softmax_cross_entropy = load().function("softmax_cross_entropy", "llppdiww")


def softmax_cross_entropy(
    x: Array, t: Array, smoothing: float = 0.0, ignore_label: int = -1
) -> tuple[float, Array]:
    """The mean over the rows that count of -sum(target * log softmax(x)), and its gradient."""
    finish()  # Python reads the loss at once
    logits, labels = np.ascontiguousarray(x), np.ascontiguousarray(t)
    gradient, loss = np.empty_like(logits), np.empty(1)
    _softmax_cross_entropy(*x.shape, logits, labels, smoothing, ignore_label, gradient, loss)
    return float(loss[0]), gradient
