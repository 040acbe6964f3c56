"""PowerSGD: a gradient travels as two thin matrices; what they leave out waits for later steps.

Vogels, Karimireddy and Jaggi, 2019 (arXiv:1905.13727). A weight is the matrix it is in memory: a
convolution's [kh][kw][C][K] has kh*kw*C rows and K columns. For each, in each step:

    M = gradient + error      what this rank has to tell and has not told yet
    P = sum of all M Q        with Q of the step before; then P's columns are made orthonormal
    Q = sum of all M^T P
    P Q^T                     takes the place of the sum of gradients
    error = M - P (M^T P)^T   with the rank's own M^T P

The error is computed when the next step's M is: in between M is kept, with the P and the M^T P that
have to be subtracted. So memory is walked once for M and P, once for Q and once for P Q^T, or not
for that, if it is left to the optimizer. Each is one call for all matrices of a bucket: after a
walk Python's own code is no longer in the caches.

The errors of all ranks add up to what the optimizer has not been given yet: nothing is lost. One
round of this power iteration a step is enough, as gradients change slowly.

P has rows x rank numbers, Q columns x rank. Where these are not fewer than the matrix has, and so
for every vector, the gradient travels as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgeddl.comm.arena import aligned_zeros
from edgeddl.comm.bucket import ITEM_BYTES, Bucket, BucketPlan, ParameterSpec
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.kernels import (
    low_rank_left,
    low_rank_orthonormalise,
    low_rank_product,
    low_rank_right,
    low_rank_subtract,
)
from edgeddl.kernels.matrices import Matrices, Products

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
        self._rank = rank
        self._buckets = plan.buckets
        self._leaves_products = False
        self._slots = [slot for slot in plan.slots if saves_bytes(slot.spec, rank)]
        self._error_shapes: dict[str, Shape] = {
            slot.spec.name: matrix_shape(slot.spec) for slot in self._slots
        }
        self._factor_shapes: dict[str, Shape] = {
            name: (rank, columns) for name, (_, columns) in self._error_shapes.items()
        }
        self._errors = _zeros(self._error_shapes)
        self.factors = _zeros(self._factor_shapes)
        for factor in self.split_factors(self.factors).values():
            factor[...] = _first_factor(factor.shape)
        self._exchanges: dict[tuple[int, int], _Exchange] = {}  # by where the bucket is

    @property
    def errors(self) -> np.ndarray:
        """This rank's, of all matrices one behind the other: to read or to change between steps."""
        with np.errstate(over="ignore", invalid="ignore"):
            for exchange in self._exchanges.values():
                exchange.settle()
        return self._errors

    def leave_products(self) -> list[Products]:
        """From now on, the products of the plan's buckets, in the place of gradients.

        They are those of a step from the end of its call to the beginning of the next one's.
        """
        self._leaves_products = True
        exchanges = ((bucket.start, self._exchange(bucket)) for bucket in self._buckets)
        return [exchange.products(start) for start, exchange in exchanges]

    def split_errors(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Errors by parameter; leading axes, such as one for ranks, stay."""
        return _split(values, self._error_shapes)

    def split_factors(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Factors by parameter."""
        return _split(values, self._factor_shapes)

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        if communicator.size == 1:
            return 0
        # What is not finite comes out as NaN on every rank: the run ends with one message, to which
        # NumPy's have nothing to add.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._exchange(bucket).sum(communicator, gradients, not self._leaves_products)

    def _exchange(self, bucket: Bucket) -> _Exchange:
        # Not by the bucket itself: its hash is that of all its slots.
        place = bucket.start, bucket.stop
        if place not in self._exchanges:
            self._exchanges[place] = self._make_exchange(bucket)
        return self._exchanges[place]

    def _make_exchange(self, bucket: Bucket) -> _Exchange:
        before = self._matrices(0, bucket.start)
        matrices = self._matrices(bucket.start, bucket.stop)
        errors = self._errors[before.errors :][: matrices.errors]
        factors = self.factors[before.rights :][: matrices.rights]
        others = [
            np.arange(slot.start, slot.stop) - bucket.start
            for slot in bucket.slots
            if slot.spec.name not in self._error_shapes
        ]
        return _Exchange(matrices, errors, factors, np.concatenate([np.arange(0), *others]))

    def _matrices(self, start: int, stop: int) -> Matrices:
        """Those in this part of the flat gradients."""
        slots = (slot for slot in self._slots if start <= slot.start < stop)
        places = [(slot.start - start, *matrix_shape(slot.spec)) for slot in slots]
        return Matrices(self._rank, stop - start, places)

    def payloads(self, bucket: Bucket) -> list[int]:
        lefts = rights = 0
        for slot in bucket.slots:
            rank, columns = self._factor_shapes.get(slot.spec.name, (0, 0))
            rows = self._error_shapes.get(slot.spec.name, (0, 0))[0]
            lefts += rank * rows if rank else slot.spec.count
            rights += rank * columns
        return [count * ITEM_BYTES for count in (lefts, rights) if count]


class _Exchange:
    """The messages of a bucket, kept from step to step, and what they are made of.

    errors: or the last step's M, from which lefts told has yet to be subtracted
    factors: every Q^T as it was at the end of the step before
    lefts: every P; with the others, which travel as they are, the first message
    rights: every Q^T, the second message
    told: this rank's part of it
    """

    def __init__(
        self, matrices: Matrices, errors: np.ndarray, factors: np.ndarray, others: np.ndarray
    ) -> None:
        """With the indices of the other gradients."""
        self._matrices, self._errors, self._factors = matrices, errors, factors
        self._places = others
        self._first = aligned_zeros(matrices.lefts + others.size)
        self._lefts, self._others = np.split(self._first, [matrices.lefts])
        self._rights, self._told = aligned_zeros(matrices.rights), aligned_zeros(matrices.rights)
        self._to_subtract = False
        indices = matrices.split_rights(np.arange(matrices.rights))
        self._row_starts = np.array([row[0] for right in indices for row in right], np.intp)

    def products(self, start: int) -> Products:
        """Of a bucket that starts there."""
        return Products(start, self._matrices, self._lefts, self._rights)

    def sum(self, communicator: Communicator, gradients: np.ndarray, multiply: bool) -> int:
        """Two all-reduces, or one where nothing is compressed; then products, if wanted."""
        self._take(gradients)
        communicator.allreduce(self._first)
        gradients[self._places] = self._others
        if self._rights.size:
            self._answer()
            communicator.allreduce(self._rights)
            if multiply:
                low_rank_product(self._matrices, self._lefts, self._rights, gradients)
            self._keep_factors()
        sizes = (self._first.nbytes, self._rights.nbytes)
        return sum(optimal_bytes(size, communicator.size) for size in sizes)

    def _take(self, gradients: np.ndarray) -> None:
        """M, in the place of the errors, and this rank's part of P."""
        told = self._told if self._to_subtract else None
        low_rank_left(self._matrices, self._errors, gradients, self._factors, self._lefts, told)
        self._to_subtract = False
        self._others[...] = gradients[self._places]

    def _answer(self) -> None:
        """This rank's part of Q."""
        low_rank_orthonormalise(self._matrices, self._lefts)
        low_rank_right(self._matrices, self._errors, self._lefts, self._rights)
        self._told[...] = self._rights
        self._to_subtract = True

    def _keep_factors(self) -> None:
        """Q for the next step."""
        self._factors[...] = self._rights
        if not np.logical_or.reduceat(self._rights, self._row_starts).all():
            self._revive()

    def _revive(self) -> None:
        """From zero it would stay zero for ever: no gradient yet, or one of a lower rank."""
        for factor in self._matrices.split_rights(self._factors):
            dead = ~factor.any(axis=1)
            factor[dead] = _first_factor(factor.shape)[dead]

    def settle(self) -> None:
        """Errors, where M was kept until now."""
        if self._to_subtract:
            low_rank_subtract(self._matrices, self._lefts, self._told, self._errors)
        self._to_subtract = False


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
