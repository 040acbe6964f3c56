"""What travels on the wire: each kind is one function that sums a bucket over all ranks.

A kind takes the communicator and a flat float32 bucket, replaces the bucket by the sum over ranks
(the same bits on every rank) and returns the bytes this rank sent. Those are the bytes of a
bandwidth-optimal all-reduce: a rank sends (size - 1)/size of the payload to have it summed and as
much again to have the sums spread, whatever order of messages MPI chooses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgeddl.comm.communicator import Communicator
from edgeddl.kernels import decode_half, encode_half

# Of numbers that can be encoded: with it, the factor is the largest power of two of a float32.
LARGEST_EXPONENT = 127 - 112 + 15

BucketSum = Callable[[Communicator, np.ndarray], int]


def optimal_bytes(payload_bytes: int, size: int) -> int:
    """Bytes a rank sends in a bandwidth-optimal all-reduce."""
    return 2 * (size - 1) * payload_bytes // size


def sum_full_precision(communicator: Communicator, bucket: np.ndarray) -> int:
    """Sum in float32, as it is."""
    if communicator.size == 1:
        return 0
    communicator.allreduce(bucket)
    return optimal_bytes(bucket.nbytes, communicator.size)


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
        self._buffers: dict[tuple[int, int], _Buffers] = {}

    def __call__(self, communicator: Communicator, bucket: np.ndarray) -> int:
        size = communicator.size
        if size == 1 or not bucket.size:
            return 0
        if (bucket.size, size) not in self._buffers:
            self._buffers[bucket.size, size] = _Buffers(bucket.size, size)
        buffers = self._buffers[bucket.size, size]
        chunks = [bucket[start : start + buffers.chunk] for start in buffers.chunk_starts]
        for chunk, message in zip(chunks, buffers.outgoing, strict=True):
            _encode(chunk, message)
        communicator.alltoall(buffers.outgoing, buffers.incoming)
        own = buffers.outgoing[communicator.rank]
        _encode(buffers.sum_incoming(), own)
        communicator.allgather_array(own, buffers.incoming)
        for chunk, message in zip(chunks, buffers.incoming, strict=True):
            _decode(message, chunk)
        return 2 * (size - 1) * own.nbytes


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


COMPRESSIONS: dict[str, Callable[[], BucketSum]] = {
    "none": lambda: sum_full_precision,
    "fp16": HalfPrecisionSum,
}
