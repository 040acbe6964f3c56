"""The sum of an array over all ranks of a ring: in C, or by reference.py."""

from __future__ import annotations

import errno
import os

import numpy as np

from edgeddl.comm.ring import reference
from edgeddl.comm.ring.position import CLOSED, ConnectionLost, Position
from edgeddl.kernels.binding import NativeFunction
from edgeddl.kernels.checks import check_dtype, check_writable
from edgeddl.kernels.half_block import HALF_BLOCK
from edgeddl.kernels.layout import Array
from edgeddl.kernels.selection import selected

_KINDS = {np.dtype(np.float32): b"f", np.dtype(np.float64): b"d", HALF_BLOCK: b"h"}

_ring_sum = NativeFunction("ring_sum", "iiiiclwli", checked=False)


def ring_sum(array: Array, position: Position) -> None:
    """Replace an array of float32, float64 or HALF_BLOCK by its sum over all ranks of a ring.

    All ranks get the same bits. Raises ConnectionLost; the array is then invalid.
    """
    check_dtype("array", array, (np.float32, np.float64, HALF_BLOCK))
    check_writable("array", array)
    if position.size == 1 or not array.size:
        return
    if selected.library is None:
        reference.ring_sum(array.reshape(-1), position)
        return
    error = _ring_sum(
        position.left.fileno(),
        position.right.fileno(),
        position.rank,
        position.size,
        _KINDS[array.dtype],
        array.size,
        array,
        position.low_water_bytes,
        position.poll_milliseconds,
    )
    if abs(error) == errno.ENOMEM:
        raise MemoryError("no memory left for the ring's receive buffer")
    if error:
        reason = CLOSED if abs(error) == errno.EPIPE else os.strerror(abs(error))
        raise ConnectionLost(error > 0, reason)
