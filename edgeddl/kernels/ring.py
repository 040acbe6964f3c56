"""Entry point of sums over ranks."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.checks import check_kind, check_writable
from edgeddl.kernels.halves import HALF_BLOCK
from edgeddl.kernels.layout import Array
from edgeddl.kernels.selection import selected
from edgeddl.kernels.streams import Neighbours


def ring_sum(array: Array, place: Neighbours) -> None:
    """Replace an array of float32, float64 or HALF_BLOCK by its sum over all ranks of a ring.

    Everybody gets the same bits. Raises StreamLost; what the array has then is of no use.
    """
    check_kind("array", array, (np.float32, np.float64, HALF_BLOCK))
    check_writable("array", array)
    if place.size > 1 and array.size:
        selected.implementation.ring_sum(array.reshape(-1), place)
