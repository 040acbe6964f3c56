"""Where the gradient matrices of a bucket and PowerSGD's thin matrices lie in flat arrays.

gradients   each matrix (rows, columns), from its own start
errors      the same matrices, one after the other
lefts       a thin matrix (rows, rank) for each, one after the other
rights      a thin matrix (rank, columns) for each, one after the other
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from edgeddl.errors import KernelError
from edgeddl.kernels.checks import check_flat, is_whole
from edgeddl.kernels.layout import Array

# struct matrix_place of csrc/edgeddl.h: a shape, and its offset in each of these arrays
PLACE = np.dtype([(n, np.int64) for n in ("rows", "columns", "gradient", "error", "left", "right")])


class Matrices:
    """The layout of the flat arrays; checked once, when it is created."""

    def __init__(self, rank: int, gradients: int, places: Iterable[tuple[int, int, int]]) -> None:
        """`gradients` is the length of that array; places are (start, rows, columns), in order."""
        places = list(places)
        _check_places(rank, gradients, places)
        self.rank, self.gradients = rank, gradients
        self.errors = self.lefts = self.rights = 0
        table = []
        for start, rows, columns in places:
            table.append((rows, columns, start, self.errors, self.lefts, self.rights))
            self.errors += rows * columns
            self.lefts += rows * rank
            self.rights += rank * columns
        self.table = np.array(table, PLACE)

    def split_gradients(self, values: Array) -> list[Array]:
        return [_part(values, p[2], p[0], p[1]) for p in self.table.tolist()]

    def split_errors(self, values: Array) -> list[Array]:
        return [_part(values, p[3], p[0], p[1]) for p in self.table.tolist()]

    def split_lefts(self, values: Array) -> list[Array]:
        return [_part(values, p[4], p[0], self.rank) for p in self.table.tolist()]

    def split_rights(self, values: Array) -> list[Array]:
        return [_part(values, p[5], self.rank, p[1]) for p in self.table.tolist()]


@dataclass(frozen=True)
class Products:
    """Gradients that exist only as products of thin matrices, left times right.

    start: the offset of `matrices` in the gradients of the whole model
    """

    start: int
    matrices: Matrices
    lefts: Array
    rights: Array

    def bounds(self) -> list[tuple[int, int]]:
        """The start and stop of each matrix in the gradients of the whole model."""
        table = self.matrices.table
        starts = self.start + table["gradient"]
        stops = starts + table["rows"] * table["columns"]
        return list(zip(starts.tolist(), stops.tolist(), strict=True))


def check_thin(matrices: Matrices, lefts: Array, rights: Array) -> None:
    """Check the flat arrays of the thin matrices."""
    check_flat(matrices.lefts, lefts=lefts)
    check_flat(matrices.rights, rights=rights)


def _part(values: Array, start: int, rows: int, columns: int) -> Array:
    return values[start : start + rows * columns].reshape(rows, columns)


def _check_places(rank: int, gradients: int, places: list[tuple[int, int, int]]) -> None:
    before = 0
    for start, rows, columns in [*places, (gradients, 0, 0)]:
        whole = all(map(is_whole, (rank, start, rows, columns)))
        if not whole or min(rank, rows, columns) < 0 or start < before:
            raise KernelError(
                f"matrices of rank {rank} must be (start, rows, columns) in order, disjoint and"
                f" within {gradients} gradients, not {places}"
            )
        before = start + rows * columns
