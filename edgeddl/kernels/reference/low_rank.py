"""PowerSGD's products of a matrix with thin ones, by BLAS."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array


def low_rank_left(
    matrix: Array, gradient: Array, factor: Array, left: Array, told: Array | None
) -> None:
    """matrix = matrix - left told + gradient, without told but the sum; left = matrix factor^T."""
    if told is not None:
        low_rank_subtract(left, told, matrix)
    matrix += gradient
    np.matmul(matrix, factor.T, out=left)


def low_rank_right(matrix: Array, left: Array, right: Array) -> None:
    """right = left^T matrix."""
    np.matmul(left.T, matrix, out=right)


def low_rank_product(left: Array, right: Array, matrix: Array) -> None:
    """matrix = left right."""
    np.matmul(left, right, out=matrix)


def low_rank_subtract(left: Array, right: Array, matrix: Array) -> None:
    """matrix = matrix - left right."""
    matrix -= left @ right
