"""The problem LINPACK solves: its size, its count of operations, its grid of ranks. Pure."""

from __future__ import annotations

import math

# As HPL: half the distance from 1 to the next double, and the largest residual that passes.
EPSILON = 2.0**-53
LARGEST_RESIDUAL = 16.0
WORST_RESIDUAL = 1e9

# Columns that are eliminated together. Large enough for BLAS to be at its best, small enough for
# the ranks of a grid to have equal shares.
BLOCK = 128
DOUBLE_BYTES = 8


def count_flops(n: int) -> float:
    """What HPL counts for n equations, whatever was really done: 2/3 n^3 + 3/2 n^2."""
    return 2 / 3 * n**3 + 3 / 2 * n**2


def limit_residual(residual: float) -> float:
    """Of a wrong result it is often not a number, which JSON and comparisons do not know."""
    return residual if 0 <= residual < WORST_RESIDUAL else WORST_RESIDUAL


def size_for_memory(memory_bytes: float, matrices: int = 1) -> int:
    """The most equations whose n x n doubles, so many times, fit; whole blocks where possible."""
    n = math.isqrt(int(memory_bytes) // (DOUBLE_BYTES * matrices))
    return max(n // BLOCK * BLOCK or n, 1)


def plan_grid(ranks: int) -> tuple[int, int]:
    """P x Q = ranks, P <= Q and as near to a square as can be: then the least travels."""
    rows = max(p for p in range(1, math.isqrt(ranks) + 1) if ranks % p == 0)
    return rows, ranks // rows
