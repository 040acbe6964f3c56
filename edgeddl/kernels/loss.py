"""Softmax cross-entropy with its gradient."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.binding import NativeFunction
from edgeddl.kernels.call_queue import flush
from edgeddl.kernels.checks import check_array, check_labels, check_rows
from edgeddl.kernels.layout import Array
from edgeddl.kernels.reference import loss as reference
from edgeddl.kernels.selection import selected

_softmax_cross_entropy = NativeFunction("softmax_cross_entropy", "llppdiww")


def softmax_cross_entropy(
    x: Array, t: Array, smoothing: float = 0.0, ignore_label: int = -1
) -> tuple[float, Array]:
    """The mean cross-entropy of the rows of x (N, M), and its gradient (N, M).

    The target is 1 - smoothing on the label t (int32), plus smoothing / M on each of the M classes.
    Rows whose label is `ignore_label` do not count.
    """
    check_array("x", x, (None, None))
    check_rows("x", x)
    check_labels("t", t, len(x), x.shape[1], ignore_label)
    if selected.library is None:
        return reference.softmax_cross_entropy(x, t, smoothing, ignore_label)
    flush()  # the loss is read below
    logits, labels = np.ascontiguousarray(x), np.ascontiguousarray(t)
    gradient, loss = np.empty_like(logits), np.empty(1)
    _softmax_cross_entropy(*x.shape, logits, labels, smoothing, ignore_label, gradient, loss)
    return float(loss[0]), gradient
