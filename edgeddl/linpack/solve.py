"""python -m edgeddl.linpack.solve N REPEATS: solves dense systems with the LAPACK of NumPy.

This is a separate process, because BLAS reads its number of threads when NumPy is imported. Each
result is printed as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from edgeddl.linpack.blas import name_of_loaded
from edgeddl.linpack.problem import EPSILON, count_flops, limit_residual

# Fast on the slowest board, but large enough to estimate the time of the full problem.
WARM_UP_SIZE = 1000


def scaled_residual(a: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """The residual of HPL: ||Ax-b|| / (eps (||A|| ||x|| + ||b||) n), all in the infinity norm."""
    norm_a, norm_x, norm_b = (float(np.linalg.norm(one, np.inf)) for one in (a, x, b))
    error = float(np.linalg.norm(a @ x - b, np.inf))
    return limit_residual(error / (EPSILON * (norm_a * norm_x + norm_b) * len(b)))


def make_system(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Uniform random numbers between -0.5 and 0.5, as in HPL."""
    rng = np.random.default_rng(seed)
    a, b = rng.random((n, n)), rng.random(n)
    a -= 0.5
    b -= 0.5
    return a, b


def solve(n: int, seed: int) -> dict[str, float]:
    """Time, processor time and residual of one system."""
    a, b = make_system(n, seed)
    started, processor = time.perf_counter(), time.process_time()
    x = np.linalg.solve(a, b)
    seconds, busy = time.perf_counter() - started, time.process_time() - processor
    return {
        "seconds": seconds,
        "processor_seconds": busy,
        "residual": scaled_residual(a, x, b),
    }


def main(n: int, repeats: int) -> None:
    warm_up = min(n, WARM_UP_SIZE)
    solve(warm_up, seed=0)  # starts the threads and raises the clock
    seconds = solve(warm_up, seed=0)["seconds"]
    with open("/proc/self/maps") as maps:
        blas = name_of_loaded(maps)
    _print_json({"blas": blas, "warm_up_gflops": count_flops(warm_up) / seconds / 1e9})
    for repeat in range(repeats):
        _print_json(solve(n, seed=repeat))


def _print_json(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except MemoryError as error:
        sys.exit(f"not enough memory: {error}")
