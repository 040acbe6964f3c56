"""Entry point of the loss."""

from __future__ import annotations

from edgeddl.kernels.checks import check_array, check_labels, check_rows
from edgeddl.kernels.layout import Array
from edgeddl.kernels.selection import selected


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
    return selected.implementation.softmax_cross_entropy(x, t, smoothing, ignore_label)
