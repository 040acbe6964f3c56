"""PowerSGD: a gradient travels as two thin matrices; what they leave out waits for later steps.

Vogels, Karimireddy and Jaggi, 2019 (arXiv:1905.13727). A weight is the matrix it is in memory: a
convolution's [kh][kw][C][K] has kh*kw*C rows and K columns. For each, in each step:

    M = gradient + error      what this rank has to tell and has not told yet
    P = sum of all M Q        with Q of the step before; then P's columns are made orthonormal
    Q = sum of all M^T P
    P Q^T                     takes the place of the sum of gradients
    error = M - P (M^T P)^T   with the rank's own M^T P

The error is computed when the next step's M is: in between M is kept, with the P and the M^T P that
have to be subtracted. So memory is walked once for M and P, once for Q and once for P Q^T.

The errors of all ranks add up to what the optimizer has not been given yet: nothing is lost. One
round of this power iteration a step is enough, as gradients change slowly.

P has rows x rank numbers, Q columns x rank. Where these are not fewer than the matrix has, and so
for every vector, the gradient travels as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgeddl.comm.arena import aligned_zeros
from edgeddl.comm.bucket import ITEM_BYTES, Bucket, BucketPlan, ParameterSpec
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.kernels import low_rank_left, low_rank_product, low_rank_right, low_rank_subtract

# A column is made of earlier ones, and of rounding, if no larger part of it is left without them.
DEPENDENT = float(np.finfo(np.float32).eps)

Shape = tuple[int, ...]


def matrix_shape(spec: ParameterSpec) -> tuple[int, int]:
    """Rows and columns of a parameter as it lies in memory; a vector is one row."""
    columns = spec.shape[spec.memory_axes[-1]] if spec.shape else 1
    return (spec.count // columns if columns else 0), columns


def saves_bytes(spec: ParameterSpec, rank: int) -> bool:
    rows, columns = matrix_shape(spec)
    return rank * (rows + columns) < rows * columns


class PowerSGD:
    """Sums a bucket over all ranks in two all-reduces, one for all P and one for all Q of it.

    factors: every Q, transposed, one behind the other; the same on all ranks
    """

    def __init__(self, plan: BucketPlan, rank: int) -> None:
        specs = [slot.spec for slot in plan.slots if saves_bytes(slot.spec, rank)]
        self._error_shapes: dict[str, Shape] = {spec.name: matrix_shape(spec) for spec in specs}
        self._factor_shapes: dict[str, Shape] = {
            name: (rank, columns) for name, (_, columns) in self._error_shapes.items()
        }
        self._errors = _zeros(self._error_shapes)
        self.factors = _zeros(self._factor_shapes)
        for factor in self.split_factors(self.factors).values():
            factor[...] = _first_factor(factor.shape)
        self._exchanges: dict[Bucket, _Exchange] = {}

    @property
    def errors(self) -> np.ndarray:
        """This rank's, of all matrices one behind the other: to read or to change between steps."""
        with np.errstate(over="ignore", invalid="ignore"):
            for exchange in self._exchanges.values():
                exchange.settle()
        return self._errors

    def split_errors(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Errors by parameter; leading axes, such as one for ranks, stay."""
        return _split(values, self._error_shapes)

    def split_factors(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Factors by parameter."""
        return _split(values, self._factor_shapes)

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        if communicator.size == 1:
            return 0
        if bucket not in self._exchanges:
            errors, factors = self.split_errors(self._errors), self.split_factors(self.factors)
            self._exchanges[bucket] = _Exchange(bucket, errors, factors)
        # What is not finite comes out as NaN on every rank: the run ends with one message, to which
        # NumPy's have nothing to add.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._exchanges[bucket].sum(communicator, gradients)

    def payloads(self, bucket: Bucket) -> list[int]:
        lefts = rights = 0
        for slot in bucket.slots:
            rank, columns = self._factor_shapes.get(slot.spec.name, (0, 0))
            rows = self._error_shapes.get(slot.spec.name, (0, 0))[0]
            lefts += rank * rows if rank else slot.spec.count
            rights += rank * columns
        return [count * ITEM_BYTES for count in (lefts, rights) if count]


class _Exchange:
    """The messages of a bucket, kept from step to step, and what they are made of."""

    def __init__(
        self, bucket: Bucket, errors: Mapping[str, np.ndarray], factors: Mapping[str, np.ndarray]
    ) -> None:
        self._place = {
            slot.spec.name: slice(slot.start - bucket.start, slot.stop - bucket.start)
            for slot in bucket.slots
        }
        names = [name for name in self._place if name in errors]
        lefts: dict[str, Shape] = {n: (len(errors[n]), len(factors[n])) for n in names}
        rights: dict[str, Shape] = {n: factors[n].shape for n in names}
        others: dict[str, Shape] = {
            slot.spec.name: (slot.spec.count,)
            for slot in bucket.slots
            if slot.spec.name not in errors
        }
        self._first, self._second = _zeros(lefts | others), _zeros(rights)
        self._told, self._to_subtract = _zeros(rights), False
        first, second = _split(self._first, lefts | others), _split(self._second, rights)
        told = _split(self._told, rights)
        self._others = {name: first[name] for name in others}
        self._matrices = {
            n: _Matrix(errors[n], factors[n], left=first[n], right=second[n], told=told[n])
            for n in names
        }

    def sum(self, communicator: Communicator, gradients: np.ndarray) -> int:
        for name, matrix in self._matrices.items():
            matrix.take(gradients[self._place[name]], self._to_subtract)
        self._to_subtract = False
        for name, message in self._others.items():
            message[...] = gradients[self._place[name]]
        communicator.allreduce(self._first)
        for name, message in self._others.items():
            gradients[self._place[name]] = message
        if self._matrices:
            self._finish(communicator, gradients)
        sizes = (self._first.nbytes, self._second.nbytes)
        return sum(optimal_bytes(size, communicator.size) for size in sizes)

    def _finish(self, communicator: Communicator, gradients: np.ndarray) -> None:
        for matrix in self._matrices.values():
            matrix.answer()
        self._told[...] = self._second
        self._to_subtract = True
        communicator.allreduce(self._second)
        for name, matrix in self._matrices.items():
            matrix.give(gradients[self._place[name]])

    def settle(self) -> None:
        """Errors, where M was kept until now."""
        if self._to_subtract:
            for matrix in self._matrices.values():
                matrix.settle()
        self._to_subtract = False


@dataclass(frozen=True, eq=False)
class _Matrix:
    """A weight's share in the state of this rank and in the messages of its bucket: all views.

    error: or the last step's M, from which left told has yet to be subtracted
    factor: Q^T as it was at the end of the step before
    left: P, in the first message
    right: Q^T, in the second
    told: this rank's part of it
    """

    error: np.ndarray
    factor: np.ndarray
    left: np.ndarray
    right: np.ndarray
    told: np.ndarray

    def take(self, flat_gradient: np.ndarray, subtract: bool) -> None:
        """M, in the place of the error, and this rank's part of P."""
        gradient = flat_gradient.reshape(self.error.shape)
        told = self.told if subtract else None
        low_rank_left(self.error, gradient, self.factor, self.left, told)

    def answer(self) -> None:
        """This rank's part of Q."""
        orthonormalise(self.left)
        low_rank_right(self.error, self.left, self.right)

    def settle(self) -> None:
        """What P and this rank's part of Q leave out, in the place of M."""
        low_rank_subtract(self.left, self.told, self.error)

    def give(self, flat_gradient: np.ndarray) -> None:
        """The product, in the place of the gradient, and Q for the next step."""
        low_rank_product(self.left, self.right, flat_gradient.reshape(self.error.shape))
        self.factor[...] = self.right
        # From zero it would stay zero for ever: no gradient yet, or of a lower rank than it may be.
        dead = ~self.factor.any(axis=1)
        if dead.any():
            self.factor[dead] = _first_factor(self.factor.shape)[dead]


def orthonormalise(columns: np.ndarray) -> None:
    """Gram-Schmidt, in place; a column that depends on those before it becomes zero.

    In float64, and without BLAS, whose order of summation follows the number of threads: from the
    same bits every rank makes the same bits.
    """
    rows = columns.T.astype(np.float64, order="C")
    before = np.sqrt(np.einsum("kr,kr->k", rows, rows))
    for index, row in enumerate(rows):
        left = math.sqrt(np.einsum("r,r->", row, row))
        row *= 1 / left if left > DEPENDENT * before[index] else 0.0  # not finite becomes NaN
        later = rows[index + 1 :]
        later -= np.einsum("kr,r->k", later, row)[:, None] * row
    columns[...] = rows.T


def _first_factor(shape: Shape) -> np.ndarray:
    """Random directions to begin with, the same on all ranks and in all runs."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _zeros(shapes: Mapping[str, Shape]) -> np.ndarray:
    """Room for arrays of these shapes, one behind the other."""
    return aligned_zeros(sum(map(math.prod, shapes.values())))


def _split(values: np.ndarray, shapes: Mapping[str, Shape]) -> dict[str, np.ndarray]:
    parts, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        parts[name] = values[..., start:stop].reshape(*values.shape[:-1], *shape)
        start = stop
    return parts
