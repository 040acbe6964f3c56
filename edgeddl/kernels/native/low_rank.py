"""PowerSGD's products of a matrix with thin ones, in C."""

from __future__ import annotations

from edgeddl.kernels.layout import Array
from edgeddl.kernels.native.library import load

_low_rank_left = load().function("low_rank_left", "lllwpppw")
_low_rank_right = load().function("low_rank_right", "lllppw")
_low_rank_product = load().function("low_rank_product", "lllppiw")

_REPLACE, _SUBTRACT = 0, -1  # what becomes of the matrix (csrc/low_rank.c)


def low_rank_left(
    matrix: Array, gradient: Array, factor: Array, left: Array, told: Array | None
) -> None:
    """matrix = matrix - left told + gradient, without told but the sum; left = matrix factor^T."""
    _low_rank_left(*matrix.shape, len(factor), matrix, gradient, told, factor, left)


def low_rank_right(matrix: Array, left: Array, right: Array) -> None:
    """right = left^T matrix."""
    _low_rank_right(*matrix.shape, len(right), matrix, left, right)


def low_rank_product(left: Array, right: Array, matrix: Array) -> None:
    """matrix = left right."""
    _low_rank_product(*matrix.shape, len(right), left, right, _REPLACE, matrix)


def low_rank_subtract(left: Array, right: Array, matrix: Array) -> None:
    """matrix = matrix - left right."""
    _low_rank_product(*matrix.shape, len(right), left, right, _SUBTRACT, matrix)
