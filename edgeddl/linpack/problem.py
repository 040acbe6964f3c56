"""The problem that LINPACK solves: size, number of operations, grid of ranks; pure functions."""

from __future__ import annotations

import math

# As in HPL: half the distance from 1 to the next double, and the largest residual that passes.
EPSILON = 2.0**-53
LARGEST_RESIDUAL = 16.0
WORST_RESIDUAL = 1e9

# Number of columns that are eliminated together: large enough for an efficient BLAS, small enough
# for equal shares of the ranks.
BLOCK = 128
DOUBLE_BYTES = 8


def count_flops(n: int) -> float:
    """The operations that HPL counts for n equations: 2/3 n^3 + 3/2 n^2."""
    return 2 / 3 * n**3 + 3 / 2 * n**2


def limit_residual(residual: float) -> float:
    """Replace NaN and infinity, typical of wrong results, which JSON cannot represent."""
    return residual if 0 <= residual < WORST_RESIDUAL else WORST_RESIDUAL


def size_for_memory(memory_bytes: float, matrices: int = 1) -> int:
    """The largest n for which the n x n matrices fit; a multiple of the block if possible."""
    n = math.isqrt(int(memory_bytes) // (DOUBLE_BYTES * matrices))
    return max(n // BLOCK * BLOCK or n, 1)


def plan_grid(ranks: int) -> tuple[int, int]:
    """P x Q = ranks with P <= Q, as square as possible to minimise communication."""
    rows = max(p for p in range(1, math.isqrt(ranks) + 1) if ranks % p == 0)
    return rows, ranks // rows
