"""Facts about the kernels in use, for the workers of edgeddl."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from edgeddl import kernels
from edgeddl.kernels.selection import selected

PEAK_TRIALS = 3


def chosen_kernels() -> str:
    """Return the selected implementation, e.g. "native avx512"."""
    return kernels.chosen()


def peak_gflops(threads: int) -> float | None:
    """The best measured rate of multiply-adds, in GFLOPS; None without a library."""
    if selected.library is None:
        return None
    return max(selected.library.measure_peak(threads) for _ in range(PEAK_TRIALS))


@contextmanager
def timed_kernels() -> Iterator[list[float]]:
    """Within the block, the seconds of every kernel call are appended to the list."""
    seconds: list[float] = []
    places = _entry_points() if selected.library is None else _c_functions()
    try:
        for place, name, kernel in places:
            setattr(place, name, partial(_call_timed, kernel, seconds))
        yield seconds
    finally:
        for place, name, kernel in places:
            setattr(place, name, kernel)


def _call_timed(
    kernel: Callable[..., Any], seconds: list[float], *arguments: Any, **keywords: Any
) -> Any:
    started = time.perf_counter()
    result = kernel(*arguments, **keywords)
    seconds.append(time.perf_counter() - started)
    return result


Place = tuple[object, str, Callable[..., Any]]  # an object, its attribute, and the kernel there


def _c_functions() -> list[Place]:
    """The C functions: what runs before and after them counts as Python."""
    return [
        (function, name, vars(function)[name])
        for function in selected.functions
        for name in ("call", "call_converted")
        if name in vars(function)
    ]


def _entry_points() -> list[Place]:
    """The kernels in NumPy, which are Python themselves."""
    names = set(kernels.__all__) - {"chosen", "describe"}
    return [(kernels, name, getattr(kernels, name)) for name in sorted(names)]
