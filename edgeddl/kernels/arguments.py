"""How Python values become arguments of C functions.

Each type's `from_param` returns an object that keeps the array alive, however late a queued call
passes it to C.
"""

from __future__ import annotations

import ctypes
from typing import Any

from edgeddl.kernels.layout import contiguous

_NoBytes = ctypes.c_char * 0

# The address of a contiguous, writable array: a third of the time of ndarray.ctypes.
address_of = _NoBytes.from_buffer


class _Array:
    """A contiguous NumPy array, or None."""

    @staticmethod
    def from_param(array: Any) -> ctypes.Array | ctypes.c_void_p | None:
        if array is None:
            return None
        try:
            return address_of(array)
        except TypeError:  # read-only, or not contiguous
            if not array.flags.c_contiguous:
                raise
            return array.ctypes.data_as(ctypes.c_void_p)


class _StridedArray:
    """A NumPy array to read, or None; copied if it is not contiguous."""

    @staticmethod
    def from_param(array: Any) -> ctypes.Array | ctypes.c_void_p | None:
        try:
            return address_of(array)
        except TypeError:  # None, read-only, or not contiguous
            return _Array.from_param(None if array is None else contiguous(array))


class _WritableArray:
    """A contiguous, writable NumPy array: converted without any Python code."""

    from_param = address_of


# By the letters that binding.py explains.
TYPES: dict[str, Any] = {
    "p": _Array,
    "v": _StridedArray,
    "w": _WritableArray,
    "o": _Array,
    "s": _WritableArray,
    "i": ctypes.c_int,
    "l": ctypes.c_long,
    "d": ctypes.c_double,
    "c": ctypes.c_char,
}
ARRAYS = "pvwos"
