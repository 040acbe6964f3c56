"""PowerSGD's products of gradient matrices with thin matrices.

All arrays are flat (matrices.py). These kernels run on the caller's thread: it communicates while
the pool's threads compute.
"""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.binding import NativeFunction
from edgeddl.kernels.checks import check_flat, check_writable
from edgeddl.kernels.layout import Array
from edgeddl.kernels.matrices import Matrices, check_thin
from edgeddl.kernels.reference import low_rank as reference
from edgeddl.kernels.selection import selected

_left = NativeFunction("low_rank_left", "pllwpppw")
_orthonormalise = NativeFunction("low_rank_orthonormalise", "plldw")
_right = NativeFunction("low_rank_right", "pllppw")
_product = NativeFunction("low_rank_product", "pllppiw")

_REPLACE, _SUBTRACT = 0, -1  # what low_rank_product does to the matrices (csrc/low_rank.c)
# A column depends on earlier ones if no larger part of it is left without them: that is rounding.
DEPENDENT = float(np.finfo(np.float32).eps)


def low_rank_left(
    matrices: Matrices,
    errors: Array,
    gradients: Array,
    factors: Array,
    lefts: Array,
    previous: Array | None,
) -> None:
    """error += gradient, then left = error times factor transposed, for each matrix.

    `previous` (rights, if given) are those of the last product: error -= left times previous, with
    the left from before the call, comes first. One pass over memory does all of it.
    """
    check_flat(matrices.gradients, gradients=gradients)
    check_flat(matrices.rights, factors=factors)
    inputs = {"gradients": gradients, "factors": factors}
    if previous is not None:
        check_flat(matrices.rights, previous=previous)
        inputs["previous"] = previous
    check_flat(matrices.errors, errors=errors)
    check_flat(matrices.lefts, lefts=lefts)
    check_writable("errors", errors, lefts=lefts, **inputs)
    check_writable("lefts", lefts, **inputs)
    if selected.library is None:
        reference.low_rank_left(matrices, errors, gradients, factors, lefts, previous)
    else:
        table, rank = matrices.table, matrices.rank
        _left(table, len(table), rank, errors, gradients, previous, factors, lefts)


def low_rank_orthonormalise(matrices: Matrices, lefts: Array) -> None:
    """Make the columns of each left orthonormal; a column that depends on earlier ones becomes 0.

    In float64, with an order of summation that does not depend on the build's vector width: from
    the same bits, all ranks with the same build compute the same bits.
    """
    check_flat(matrices.lefts, lefts=lefts)
    check_writable("lefts", lefts)
    if selected.library is None:
        reference.low_rank_orthonormalise(matrices, lefts, DEPENDENT)
    else:
        _orthonormalise(matrices.table, len(matrices.table), matrices.rank, DEPENDENT, lefts)


def low_rank_right(matrices: Matrices, errors: Array, lefts: Array, rights: Array) -> None:
    """right = left transposed, times error."""
    check_flat(matrices.errors, errors=errors)
    check_thin(matrices, lefts, rights)
    check_writable("rights", rights, errors=errors, lefts=lefts)
    if selected.library is None:
        reference.low_rank_right(matrices, errors, lefts, rights)
    else:
        _right(matrices.table, len(matrices.table), matrices.rank, errors, lefts, rights)


def low_rank_product(matrices: Matrices, lefts: Array, rights: Array, gradients: Array) -> None:
    """gradient = left times right; gradients between the matrices stay as they are."""
    check_flat(matrices.gradients, gradients=gradients)
    check_thin(matrices, lefts, rights)
    check_writable("gradients", gradients, lefts=lefts, rights=rights)
    if selected.library is None:
        reference.low_rank_product(matrices, lefts, rights, gradients)
    else:
        table, rank = matrices.table, matrices.rank
        _product(table, len(table), rank, lefts, rights, _REPLACE, gradients)


def low_rank_subtract(matrices: Matrices, lefts: Array, rights: Array, errors: Array) -> None:
    """error -= left times right: bit for bit what low_rank_left does with `previous`."""
    check_flat(matrices.errors, errors=errors)
    check_thin(matrices, lefts, rights)
    check_writable("errors", errors, lefts=lefts, rights=rights)
    if selected.library is None:
        reference.low_rank_subtract(matrices, lefts, rights, errors)
    else:
        table, rank = matrices.table, matrices.rank
        _product(table, len(table), rank, lefts, rights, _SUBTRACT, errors)
