"""Facts about the kernels in use, for the workers of edgeddl."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from edgeddl import kernels
from edgeddl.kernels import reference

PEAK_TRIALS = 3


def chosen_kernels() -> str:
    """Return the selected implementation, e.g. "native avx512"."""
    return kernels.chosen()


def peak_gflops(threads: int) -> float | None:
    """Measure the processor's peak multiply-add rate in GFLOPS; None without native kernels."""
    if not chosen_kernels().startswith("native"):
        return None
    from edgeddl.kernels.native.library import measure_peak

    return max(measure_peak(threads) for _ in range(PEAK_TRIALS))


@contextmanager
def timed_kernels() -> Iterator[list[float]]:
    """Within the block, append the seconds of every kernel call to the list."""
    seconds: list[float] = []
    places = _c_functions() or _entry_points()
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


Place = tuple[object, str, Callable[..., Any]]  # owner, attribute name, function


def _c_functions() -> list[Place]:
    """Find the native kernels; everything around them counts as Python time."""
    modules = [
        module
        for path, module in list(sys.modules.items())
        if path.startswith("edgeddl.kernels.native.")
    ]
    values = [value for module in modules for value in vars(module).values()]
    # queued calls have their own C functions
    deferrable = [value for value in values if hasattr(value, "later")]
    return [
        (place, name, value)
        for place in [*modules, *deferrable]
        for name, value in list(vars(place).items())
        if hasattr(value, "argtypes")
    ]


def _entry_points() -> list[Place]:
    """Find the entry points of the NumPy kernels, which are Python functions."""
    return [(kernels, name, getattr(kernels, name)) for name in reference.__all__]
