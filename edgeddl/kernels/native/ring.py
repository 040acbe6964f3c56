"""A ring all-reduce over byte streams, in C."""

from __future__ import annotations

import errno
import os

import numpy as np

from edgeddl.kernels.halves import HALF_BLOCK
from edgeddl.kernels.layout import Array
from edgeddl.kernels.native.library import load
from edgeddl.kernels.streams import CLOSED, Neighbours, StreamLost

_KINDS = {np.dtype(np.float32): b"f", np.dtype(np.float64): b"d", HALF_BLOCK: b"h"}

_ring_sum = load().plain_function("ring_sum", "iiiiclwli")


def ring_sum(array: Array, place: Neighbours) -> None:
    """Replace the array by its sum over all ranks."""
    error = _ring_sum(
        place.left.fileno(),
        place.right.fileno(),
        place.rank,
        place.size,
        _KINDS[array.dtype],
        array.size,
        array,
        place.waking_bytes,
        place.longest_sleep,
    )
    if abs(error) == errno.ENOMEM:
        raise MemoryError("no memory left for what arrives from a neighbour")
    if error:
        reason = CLOSED if abs(error) == errno.EPIPE else os.strerror(abs(error))
        raise StreamLost(error > 0, reason)
