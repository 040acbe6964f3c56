"""Softmax cross-entropy with its gradient, in float64: there are few logits."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array


def softmax_cross_entropy(
    x: Array, t: Array, smoothing: float = 0.0, ignore_label: int = -1
) -> tuple[float, Array]:
    """The mean over the rows that count of -sum(target * log softmax(x)), and its gradient."""
    counted = np.flatnonzero(t != ignore_label)
    log_softmax = _log_softmax(x[counted].astype(np.float64))
    labels = np.arange(len(counted)), t[counted]
    scores = (1 - smoothing) * log_softmax[labels]
    if smoothing:  # 0 times minus infinity would be NaN
        scores += smoothing * log_softmax.mean(axis=1)
    difference = np.exp(log_softmax) - smoothing / x.shape[1]
    difference[labels] -= 1 - smoothing
    weight = 1 / max(len(counted), 1)
    gradient = np.zeros(x.shape, np.float32)
    gradient[counted] = weight * difference
    return float(-weight * scores.sum()), gradient


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
