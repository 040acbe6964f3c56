"""The C functions of the native library, as Python calls them.

A module declares each function once, with a letter for each argument:

p   contiguous array or None        v   array to read, of any strides, or None
w   contiguous array to write       o   contiguous array to write, or None
s   structure, made by `structure`
i   int        l   long        d   double        c   char

The declarations are bound when a library is selected. tests/unit/kernels/test_header.py compares
them with csrc/edgeddl.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgeddl.kernels import call_queue
from edgeddl.kernels.selection import selected

if TYPE_CHECKING:
    from edgeddl.kernels.library import Library


_OUT_OF_MEMORY = 1  # csrc/threads.h


def structure(dtype: np.dtype, *values: int) -> np.ndarray:
    """A C structure as bytes: NumPy exposes the memory of plain numbers faster than of records."""
    return np.array([values], dtype).view(np.uint8)


class NativeFunction:
    """The C function edgeddl_<name>.

    With `checked`, a return value that reports a lack of memory becomes a MemoryError.
    """

    call: Any  # the C function

    def __init__(self, name: str, arguments: str, *, checked: bool = True) -> None:
        self.name, self.arguments, self.checked = name, arguments, checked
        if selected.library is not None:
            self.bind(selected.library)
        selected.functions.append(self)

    def bind(self, library: Library) -> None:
        """Call the function of this library from now on."""
        from edgeddl.kernels.arguments import TYPES  # needs ctypes, which some Pythons lack

        self.call = library.function(self.name)
        self.call.argtypes = [TYPES[letter] for letter in self.arguments]
        if self.checked:
            self.call.errcheck = _check_memory

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def _check_memory(result: int, function: object, arguments: tuple[object, ...]) -> None:
    if result == _OUT_OF_MEMORY:
        raise MemoryError("no memory left for the workspace of a kernel")


class QueuedFunction(NativeFunction):
    """A C function whose results only kernels read: while the call queue is open it is queued."""

    call_converted: Any  # the C function, for arguments that are converted already
    _conversions: list[Any]
    _quick_conversions: list[Any]  # for writable and contiguous arrays: without any Python code

    def bind(self, library: Library) -> None:
        from edgeddl.kernels.arguments import ARRAYS, TYPES, address_of

        super().bind(library)
        self.call_converted = library.function(self.name)
        self.call_converted.errcheck = _check_memory
        self._conversions = [TYPES[letter].from_param for letter in self.arguments]
        self._quick_conversions = [
            address_of if letter in ARRAYS else TYPES[letter].from_param
            for letter in self.arguments
        ]
        self._results = [i for i, letter in enumerate(self.arguments) if letter in "wo"]

    def __call__(self, *arguments: Any) -> None:
        if not call_queue.queue.open:
            self.call(*arguments)
            return
        try:  # works for all arrays but read-only and non-contiguous ones
            pairs = zip(self._quick_conversions, arguments, strict=True)
            converted = [None if value is None else convert(value) for convert, value in pairs]
        except TypeError:
            pairs = zip(self._conversions, arguments, strict=True)
            converted = [convert(value) for convert, value in pairs]
        new_bytes = 0
        for index in self._results:
            array = arguments[index]
            if array is not None and array.base is None:
                new_bytes += array.nbytes
        call_queue.enqueue(self.call_converted, converted, new_bytes)
