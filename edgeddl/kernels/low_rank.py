"""Entry points of gradients as products of thin matrices."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.checks import check_flat, check_writable
from edgeddl.kernels.layout import Array
from edgeddl.kernels.matrices import Matrices, check_thin
from edgeddl.kernels.selection import selected

# A column is made of earlier ones, and of rounding, if no larger part of it is left without them.
DEPENDENT = float(np.finfo(np.float32).eps)


def low_rank_left(
    matrices: Matrices,
    errors: Array,
    gradients: Array,
    factors: Array,
    lefts: Array,
    told: Array | None,
) -> None:
    """error += gradient, then left = error times factor transposed, for each of the matrices.

    With `told` (as `factors`, one right each), an error is first freed of the product of left, as
    it was before, and told. One walk over memory; on the caller's thread, as all of these: it is
    the one that communicates. All arrays are flat (see matrices.py).
    """
    check_flat(matrices.gradients, gradients=gradients)
    check_flat(matrices.rights, factors=factors)
    inputs = {"gradients": gradients, "factors": factors}
    if told is not None:
        check_flat(matrices.rights, told=told)
        inputs["told"] = told
    check_flat(matrices.errors, errors=errors)
    check_flat(matrices.lefts, lefts=lefts)
    check_writable("errors", errors, lefts=lefts, **inputs)
    check_writable("lefts", lefts, **inputs)
    selected.implementation.low_rank_left(matrices, errors, gradients, factors, lefts, told)


def low_rank_orthonormalise(matrices: Matrices, lefts: Array) -> None:
    """Makes the columns of each left orthonormal; one that depends on those before becomes zero.

    From the same bits every rank with the same build makes the same bits.
    """
    check_flat(matrices.lefts, lefts=lefts)
    check_writable("lefts", lefts)
    selected.implementation.low_rank_orthonormalise(matrices, lefts, DEPENDENT)


def low_rank_right(matrices: Matrices, errors: Array, lefts: Array, rights: Array) -> None:
    """right = left transposed, times error."""
    check_flat(matrices.errors, errors=errors)
    check_thin(matrices, lefts, rights)
    check_writable("rights", rights, errors=errors, lefts=lefts)
    selected.implementation.low_rank_right(matrices, errors, lefts, rights)


def low_rank_product(matrices: Matrices, lefts: Array, rights: Array, gradients: Array) -> None:
    """gradient = left times right; what lies between matrices stays as it is."""
    check_flat(matrices.gradients, gradients=gradients)
    check_thin(matrices, lefts, rights)
    check_writable("gradients", gradients, lefts=lefts, rights=rights)
    selected.implementation.low_rank_product(matrices, lefts, rights, gradients)


def low_rank_subtract(matrices: Matrices, lefts: Array, rights: Array, errors: Array) -> None:
    """error -= left times right: to the bit what low_rank_left does with what was told."""
    check_flat(matrices.errors, errors=errors)
    check_thin(matrices, lefts, rights)
    check_writable("errors", errors, lefts=lefts, rights=rights)
    selected.implementation.low_rank_subtract(matrices, lefts, rights, errors)
