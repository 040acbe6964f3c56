"""PowerSGD: a gradient travels as two thin matrices, with error feedback.

Vogels, Karimireddy and Jaggi, 2019 (arXiv:1905.13727). A weight is the matrix it is in memory: a
convolution's [kh][kw][C][K] has kh*kw*C rows and K columns. For each matrix, in each step:

    M = gradient + error      the gradient, and what this rank has not sent yet
    P = sum of all M Q        with Q of the previous step; then P's columns are orthonormalised
    Q = sum of all M^T P
    P Q^T                     replaces the sum of the gradients
    error = M - P (M^T P)^T   with the rank's own M^T P

The error is computed together with the next step's M: until then the policy keeps M, and the P and
M^T P to subtract. So it reads the gradients' memory once for M and P, once for Q and once for
P Q^T; the last pass is skipped if the optimizer multiplies the factors. Each pass is one call for
all matrices of a bucket, because after a pass Python's own code is no longer in the caches.

The errors of all ranks add up to what the optimizer has not received yet, so nothing is lost. One
round of this power iteration in each step is enough, as gradients change slowly.

P has rows x rank numbers, Q columns x rank. If that is not fewer than the matrix has, and therefore
for every vector, the gradient travels uncompressed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgeddl.comm.arena import aligned_zeros
from edgeddl.comm.bucket import ITEM_BYTES, Bucket, BucketPlan, ParameterSpec
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.policies import FactoredGradients, Policy
from edgeddl.kernels import (
    low_rank_left,
    low_rank_orthonormalise,
    low_rank_product,
    low_rank_right,
    low_rank_subtract,
)
from edgeddl.kernels.matrices import Matrices

Shape = tuple[int, ...]


def matrix_shape(spec: ParameterSpec) -> tuple[int, int]:
    """Rows and columns of a parameter as it lies in memory; a vector is one row."""
    columns = spec.shape[spec.memory_axes[-1]] if spec.shape else 1
    return (spec.count // columns if columns else 0), columns


def saves_bytes(spec: ParameterSpec, rank: int) -> bool:
    rows, columns = matrix_shape(spec)
    return rank * (rows + columns) < rows * columns


class PowerSGD(Policy):
    """Sums a bucket in two all-reduces, one for all its P and one for all its Q.

    factors: every Q, transposed, one after the other; the same on all ranks
    """

    # With 32 MiB instead of 4 a step takes 0.24 s instead of 0.27, because a bucket takes two
    # all-reduces however small they are (ResNet-18, ImageNet stem, four emulated boards).
    bucket_mib = 32
    # Each rank computes P Q^T, without the columns of P below a limit. A difference in the last bit
    # may decide over a whole column.
    needs_identical_kernels = True
    splittable = False  # a matrix is factored as a whole

    def __init__(self, plan: BucketPlan, compression_rank: int) -> None:
        super().__init__(plan, compression_rank)
        self._leaves_factored = False
        self._slots = [slot for slot in plan.slots if saves_bytes(slot.spec, compression_rank)]
        self._error_shapes: dict[str, Shape] = {
            slot.spec.name: matrix_shape(slot.spec) for slot in self._slots
        }
        self._factor_shapes: dict[str, Shape] = {
            name: (compression_rank, columns) for name, (_, columns) in self._error_shapes.items()
        }
        self._errors = _zeros(self._error_shapes)
        self.factors = _zeros(self._factor_shapes)
        for factor in _split(self.factors, self._factor_shapes).values():
            factor[...] = _first_factor(factor.shape)
        self._messages: dict[tuple[int, int], _Messages] = {}  # by start and stop of the bucket

    @property
    def description(self) -> str:
        return f"PowerSGD of rank {self.compression_rank}"

    @property
    def errors(self) -> np.ndarray:
        """This rank's errors of all matrices, one after the other; call it between steps."""
        with np.errstate(over="ignore", invalid="ignore"):
            for messages in self._messages.values():
                messages.compute_errors()
        return self._errors

    def leave_factored(self) -> list[FactoredGradients]:
        self._leaves_factored = True
        return [self._messages_of(bucket).factored(bucket.start) for bucket in self.plan.buckets]

    def shared_state(self) -> dict[str, np.ndarray]:
        factors = _split(self.factors, self._factor_shapes)
        return {f"factor/{name}": factor for name, factor in factors.items()}

    def rank_state(self) -> dict[str, np.ndarray]:
        errors = _split(self.errors, self._error_shapes)
        return {f"error/{name}": error for name, error in errors.items()}

    def sum(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        # Values that are not finite become NaN on every rank. The run then ends with one message,
        # which NumPy's warnings would hide.
        with np.errstate(over="ignore", invalid="ignore"):
            messages = self._messages_of(bucket)
            return messages.exchange(communicator, gradients, multiply=not self._leaves_factored)

    def payloads(self, bucket: Bucket) -> list[int]:
        lefts = rights = 0
        for slot in bucket.slots:
            rank, columns = self._factor_shapes.get(slot.spec.name, (0, 0))
            rows = self._error_shapes.get(slot.spec.name, (0, 0))[0]
            lefts += rank * rows if rank else slot.spec.count
            rights += rank * columns
        return [count * ITEM_BYTES for count in (lefts, rights) if count]

    def _messages_of(self, bucket: Bucket) -> _Messages:
        # Not by the bucket itself: hashing it would hash all its slots.
        place = bucket.start, bucket.stop
        if place not in self._messages:
            self._messages[place] = self._make_messages(bucket)
        return self._messages[place]

    def _make_messages(self, bucket: Bucket) -> _Messages:
        before = self._matrices(0, bucket.start)
        matrices = self._matrices(bucket.start, bucket.stop)
        errors = self._errors[before.errors :][: matrices.errors]
        factors = self.factors[before.rights :][: matrices.rights]
        others = [
            np.arange(slot.start, slot.stop) - bucket.start
            for slot in bucket.slots
            if slot.spec.name not in self._error_shapes
        ]
        return _Messages(matrices, errors, factors, np.concatenate([np.arange(0), *others]))

    def _matrices(self, start: int, stop: int) -> Matrices:
        """The matrices in this part of the flat gradients."""
        slots = (slot for slot in self._slots if start <= slot.start < stop)
        places = [(slot.start - start, *matrix_shape(slot.spec)) for slot in slots]
        return Matrices(self.compression_rank, stop - start, places)


class _Messages:
    """The two messages of a bucket, kept from step to step, and their sources.

    errors: the errors, or the last step's M, from which lefts times own_rights is yet to be
        subtracted
    factors: every Q^T at the end of the previous step
    lefts: every P; followed by the uncompressed gradients it is the first message
    rights: every Q^T, the second message
    own_rights: this rank's part of the second message
    """

    def __init__(
        self, matrices: Matrices, errors: np.ndarray, factors: np.ndarray, others: np.ndarray
    ) -> None:
        """`others`: the indices of the uncompressed gradients."""
        self._matrices, self._errors, self._factors = matrices, errors, factors
        self._places = others
        self._first = aligned_zeros(matrices.lefts + others.size)
        self._lefts, self._others = np.split(self._first, [matrices.lefts])
        self._rights, self._own_rights = (aligned_zeros(matrices.rights) for _ in range(2))
        self._holds_m = False
        indices = matrices.split_rights(np.arange(matrices.rights))
        self._row_starts = np.array([row[0] for right in indices for row in right], np.intp)

    def factored(self, start: int) -> FactoredGradients:
        """The factors of a bucket that starts there."""
        return FactoredGradients(start, self._matrices, self._lefts, self._rights)

    def exchange(self, communicator: Communicator, gradients: np.ndarray, *, multiply: bool) -> int:
        """Two all-reduces, or one if nothing is compressed; then P Q^T, if asked for."""
        self._fill_first(gradients)
        communicator.allreduce(self._first)
        gradients[self._places] = self._others
        if self._rights.size:
            self._fill_second()
            communicator.allreduce(self._rights)
            if multiply:
                low_rank_product(self._matrices, self._lefts, self._rights, gradients)
            self._keep_factors()
        sizes = (self._first.nbytes, self._rights.nbytes)
        return sum(optimal_bytes(size, communicator.size) for size in sizes)

    def compute_errors(self) -> None:
        if self._holds_m:
            low_rank_subtract(self._matrices, self._lefts, self._own_rights, self._errors)
        self._holds_m = False

    def _fill_first(self, gradients: np.ndarray) -> None:
        """Replace the errors by M, and fill in this rank's part of P."""
        own = self._own_rights if self._holds_m else None
        low_rank_left(self._matrices, self._errors, gradients, self._factors, self._lefts, own)
        self._holds_m = False
        self._others[...] = gradients[self._places]

    def _fill_second(self) -> None:
        """This rank's part of Q."""
        low_rank_orthonormalise(self._matrices, self._lefts)
        low_rank_right(self._matrices, self._errors, self._lefts, self._rights)
        self._own_rights[...] = self._rights
        self._holds_m = True

    def _keep_factors(self) -> None:
        """Q for the next step."""
        self._factors[...] = self._rights
        if not np.logical_or.reduceat(self._rights, self._row_starts).all():
            self._replace_zero_factors()

    def _replace_zero_factors(self) -> None:
        """A zero row would stay zero; it stems from no gradient yet, or one of a lower rank."""
        for factor in self._matrices.split_rights(self._factors):
            zero = ~factor.any(axis=1)
            factor[zero] = _first_factor(factor.shape)[zero]


def _first_factor(shape: Shape) -> np.ndarray:
    """Random directions to start with, the same on all ranks and in all runs."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _zeros(shapes: Mapping[str, Shape]) -> np.ndarray:
    """Memory for arrays of these shapes, one after the other."""
    return aligned_zeros(sum(map(math.prod, shapes.values())))


def _split(values: np.ndarray, shapes: Mapping[str, Shape]) -> dict[str, np.ndarray]:
    """Views of these shapes, by parameter."""
    parts, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        parts[name] = values[start:stop].reshape(shape)
        start = stop
    return parts
