"""python -m edgeddl.linpack.dgemm LIBRARY THREADS: one second of matrix products with a BLAS."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable

import numpy as np

N = 1024
SECONDS = 1.0


def measure(library: str, threads: int) -> dict[str, float]:
    """The share of processor time that the threads got."""
    rng = np.random.default_rng(0)
    a, b = (np.asfortranarray(rng.random((N, N))) for _ in range(2))
    c = np.zeros((N, N), order="F")
    multiply = _bind(library, a, b, c)
    multiply()  # starts the threads
    began, processor = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < SECONDS:
        multiply()
    wall, busy = time.perf_counter() - began, time.process_time() - processor
    if not np.isclose(c[-1, -1], (a[-1] * b[:, -1]).sum()):
        sys.exit(f"{library}: wrong matrix product")
    return {"processor_share": busy / wall / threads}


def _bind(library: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Callable[[], None]:
    """C = A B, through the Fortran interface that every BLAS has."""
    dgemm = ctypes.CDLL(library).dgemm_
    n, one, zero = ctypes.c_int(N), ctypes.c_double(1), ctypes.c_double(0)
    size, alpha, beta = ctypes.byref(n), ctypes.byref(one), ctypes.byref(zero)
    arrays = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, c)]

    def multiply() -> None:
        dgemm(
            b"N", b"N", size, size, size, alpha, arrays[0], size, arrays[1], size, beta,
            arrays[2], size, ctypes.c_size_t(1), ctypes.c_size_t(1),
        )  # fmt: skip

    return multiply


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
