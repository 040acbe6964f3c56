"""What travels on the wire: each kind is one function that sums a bucket over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from edgeddl.comm.bucket import ITEM_BYTES, Bucket, BucketPlan
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.powersgd import PowerSGD
from edgeddl.kernels import decode_half, encode_half

# Of numbers that can be encoded: with it, the factor is the largest power of two of a float32.
LARGEST_EXPONENT = 127 - 112 + 15


class BucketSum(Protocol):
    """Sums one bucket over all ranks: a collective call."""

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        """Replace the bucket's flat float32 gradients by their sum, or what stands for it.

        It has the same bits on every rank. Returns the bytes this rank sent, counted as those of
        bandwidth-optimal collectives.
        """

    def payloads(self, bucket: Bucket) -> list[int]:
        """The bytes of each all-reduce that a bucket takes, as they travel."""


class FullPrecisionSum:
    """Sums in float32, as it is."""

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        if communicator.size == 1:
            return 0
        communicator.allreduce(gradients)
        return optimal_bytes(gradients.nbytes, communicator.size)

    def payloads(self, bucket: Bucket) -> list[int]:
        return [(bucket.stop - bucket.start) * ITEM_BYTES]


class OwnGradients:
    """Sends nothing: each rank takes its step with its own gradients."""

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        return 0

    def payloads(self, bucket: Bucket) -> list[int]:
        return []


class HalfPrecisionSum:
    """Half precision on the wire, sums in float32.

    A bucket is cut into one chunk a rank. Everybody sends chunk i to rank i, which adds the chunks
    up in float32, in the order of ranks, and sends the sum to everybody: each value is rounded
    twice, however many ranks there are, and nothing is ever added in half precision. Each message
    carries its own power of two, which moves its largest value to just below 2**15: nothing
    overflows, and gradients far below half precision's smallest number (6e-8) survive. A message
    with a number that is not finite, or above 2**30, arrives as NaN: training has diverged.
    """

    # The factor travels in front of the values, as one float32 in the place of two halves.
    HEADER = 2

    def __init__(self) -> None:
        # by lane, because buckets of one length may be under way in several
        self._buffers: dict[tuple[Communicator, int], _Buffers] = {}

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        length, size = gradients.size, communicator.size
        if size == 1 or not length:
            return 0
        if (communicator, length) not in self._buffers:
            self._buffers[communicator, length] = _Buffers(length, size)
        buffers = self._buffers[communicator, length]
        chunks = [gradients[start : start + buffers.chunk] for start in buffers.chunk_starts]
        for chunk, message in zip(chunks, buffers.outgoing, strict=True):
            _encode(chunk, message)
        communicator.alltoall(buffers.outgoing, buffers.incoming)
        own = buffers.outgoing[communicator.rank]
        _encode(buffers.sum_incoming(), own)
        communicator.allgather_array(own, buffers.incoming)
        for chunk, message in zip(chunks, buffers.incoming, strict=True):
            _decode(message, chunk)
        return 2 * (size - 1) * own.nbytes

    def payloads(self, bucket: Bucket) -> list[int]:
        return [(bucket.stop - bucket.start) * ITEM_BYTES // 2]


class _Buffers:
    """Messages to and from every rank for a bucket of one length, kept from step to step."""

    def __init__(self, length: int, size: int) -> None:
        self.chunk = -(-length // size)
        self.chunk_starts = [rank * self.chunk for rank in range(size)]
        shape = (size, HalfPrecisionSum.HEADER + self.chunk)
        self.outgoing = np.zeros(shape, np.uint16)
        self.incoming = np.zeros(shape, np.uint16)
        self._total = np.zeros(self.chunk, np.float32)
        self._addend = np.zeros(self.chunk, np.float32)

    def sum_incoming(self) -> np.ndarray:
        _decode(self.incoming[0], self._total)
        for message in self.incoming[1:]:
            _decode(message, self._addend)
            self._total += self._addend
        return self._total


def _encode(values: np.ndarray, message: np.ndarray) -> None:
    header, body = message[: HalfPrecisionSum.HEADER], message[HalfPrecisionSum.HEADER :]
    factor = _factor_for(values)
    header.view(np.float32)[0] = factor
    if np.isfinite(factor):
        encode_half(values, float(factor), body[: values.size])


def _decode(message: np.ndarray, values: np.ndarray) -> None:
    header, body = message[: HalfPrecisionSum.HEADER], message[HalfPrecisionSum.HEADER :]
    decode_half(body[: values.size], float(header.view(np.float32)[0]), values)


def _factor_for(values: np.ndarray) -> np.float32:
    """The factor with which the largest magnitude is encoded as a half within [2**14, 2**15)."""
    largest = max(values.max(), -values.min()) if values.size else np.float32(0)
    exponent = int(np.frexp(largest)[1]) if np.isfinite(largest) else LARGEST_EXPONENT + 1
    if exponent > LARGEST_EXPONENT:
        return np.float32(np.nan)
    return np.float32(2.0 ** (112 + exponent - 15))


# Made from the plan of a model's gradients and --compression-rank.
COMPRESSIONS: dict[str, Callable[[BucketPlan, int], BucketSum]] = {
    "none": lambda plan, rank: FullPrecisionSum(),
    "fp16": lambda plan, rank: HalfPrecisionSum(),
    "powersgd": PowerSGD,
}
