"""The training loss: softmax cross-entropy with label smoothing."""

from __future__ import annotations

import numpy as np

from edgeddl.chainer_compat import F, chainer


def smoothed_cross_entropy(
    logits: chainer.Variable, t: np.ndarray, label_smoothing: float
) -> chainer.Variable:
    """Mean cross-entropy against a target of 1 - s on the label plus s / classes on every class."""
    loss = F.softmax_cross_entropy(logits, t)
    if label_smoothing == 0:
        return loss
    uniform = -F.average(F.log_softmax(logits))
    return (1 - label_smoothing) * loss + label_smoothing * uniform
