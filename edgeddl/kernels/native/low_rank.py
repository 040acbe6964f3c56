"""PowerSGD's products of matrices with thin ones, in C."""

from __future__ import annotations

from edgeddl.kernels.layout import Array
from edgeddl.kernels.matrices import Matrices
from edgeddl.kernels.native.library import load

_low_rank_left = load().function("low_rank_left", "pllwpppw")
_low_rank_orthonormalise = load().function("low_rank_orthonormalise", "plldw")
_low_rank_right = load().function("low_rank_right", "pllppw")
_low_rank_product = load().function("low_rank_product", "pllppiw")

_REPLACE, _SUBTRACT = 0, -1  # what becomes of matrices (csrc/low_rank.c)


def low_rank_left(
    m: Matrices, errors: Array, gradients: Array, factors: Array, lefts: Array, told: Array | None
) -> None:
    """error = error - left told + gradient, without told but the sum; left = error factor^T."""
    _low_rank_left(m.table, len(m.table), m.rank, errors, gradients, told, factors, lefts)


def low_rank_orthonormalise(m: Matrices, lefts: Array, dependent: float) -> None:
    """Gram-Schmidt in float64, in an order of summation that does not depend on the build."""
    _low_rank_orthonormalise(m.table, len(m.table), m.rank, dependent, lefts)


def low_rank_right(m: Matrices, errors: Array, lefts: Array, rights: Array) -> None:
    """right = left^T error."""
    _low_rank_right(m.table, len(m.table), m.rank, errors, lefts, rights)


def low_rank_product(m: Matrices, lefts: Array, rights: Array, gradients: Array) -> None:
    """gradient = left right."""
    _low_rank_product(m.table, len(m.table), m.rank, lefts, rights, _REPLACE, gradients)


def low_rank_subtract(m: Matrices, lefts: Array, rights: Array, errors: Array) -> None:
    """error = error - left right."""
    _low_rank_product(m.table, len(m.table), m.rank, lefts, rights, _SUBTRACT, errors)
