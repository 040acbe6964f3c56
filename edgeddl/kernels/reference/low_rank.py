"""PowerSGD's products of gradient matrices with thin matrices, by BLAS."""

from __future__ import annotations

import math

import numpy as np

from edgeddl.kernels.layout import Array
from edgeddl.kernels.matrices import Matrices


def low_rank_left(
    m: Matrices,
    errors: Array,
    gradients: Array,
    factors: Array,
    lefts: Array,
    previous: Array | None,
) -> None:
    """error = error - left previous + gradient, then left = error factor^T."""
    if previous is not None:
        low_rank_subtract(m, lefts, previous, errors)
    for error, gradient, factor, left in zip(
        m.split_errors(errors), m.split_gradients(gradients), m.split_rights(factors),
        m.split_lefts(lefts), strict=True,
    ):  # fmt: skip
        error += gradient
        np.matmul(error, factor.T, out=left)


def low_rank_orthonormalise(m: Matrices, lefts: Array, dependent: float) -> None:
    """Gram-Schmidt in float64, without BLAS: its order of summation depends on its threads."""
    for left in m.split_lefts(lefts):
        columns = left.T.astype(np.float64, order="C")
        before = np.sqrt(np.einsum("kr,kr->k", columns, columns))
        for index, column in enumerate(columns):
            length = math.sqrt(np.einsum("r,r->", column, column))
            column *= 1 / length if length > dependent * before[index] else 0.0
            later = columns[index + 1 :]
            later -= np.einsum("kr,r->k", later, column)[:, None] * column
        left[...] = columns.T


def low_rank_right(m: Matrices, errors: Array, lefts: Array, rights: Array) -> None:
    """right = left^T error."""
    for error, left, right in zip(
        m.split_errors(errors), m.split_lefts(lefts), m.split_rights(rights), strict=True
    ):
        np.matmul(left.T, error, out=right)


def low_rank_product(m: Matrices, lefts: Array, rights: Array, gradients: Array) -> None:
    """gradient = left right."""
    for left, right, gradient in zip(
        m.split_lefts(lefts), m.split_rights(rights), m.split_gradients(gradients), strict=True
    ):
        np.matmul(left, right, out=gradient)


def low_rank_subtract(m: Matrices, lefts: Array, rights: Array, errors: Array) -> None:
    """error = error - left right."""
    for left, right, error in zip(
        m.split_lefts(lefts), m.split_rights(rights), m.split_errors(errors), strict=True
    ):
        error -= left @ right
