"""What travels on the wire: each kind is one function that sums a bucket over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from edgeddl.comm.bucket import ITEM_BYTES, Bucket, BucketPlan
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.powersgd import PowerSGD
from edgeddl.kernels import decode_half, encode_half
from edgeddl.kernels.half_block import HALF_BLOCK, blocks_for, empty_blocks


class BucketSum(Protocol):
    """Sums one bucket over all ranks: a collective call."""

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        """Replace the bucket's flat float32 gradients by their sum, or what stands for it.

        It has the same bits on every rank. Where PowerSGD leaves products to the optimizer, these
        stand for it, and the gradients stay what they are. Returns the bytes this rank sent,
        counted as those of bandwidth-optimal collectives.
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
    """Half precision on the wire, in blocks with a power of two each (kernels/half_block.py).

    It goes round the ring, whatever was chosen for other sums, because MPI cannot add blocks. A
    rank adds in float32 what arrives and what it has, and rounds what it sends on.
    """

    def __init__(self) -> None:
        # by lane, because buckets of one length may be under way in several
        self._blocks: dict[tuple[Communicator, int], np.ndarray] = {}

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        length = gradients.size
        if communicator.size == 1 or not length:
            return 0
        if (communicator, length) not in self._blocks:
            self._blocks[communicator, length] = empty_blocks(length)
        blocks = self._blocks[communicator, length]
        encode_half(gradients, blocks)
        communicator.allreduce(blocks, "ring")
        decode_half(blocks, gradients)
        return optimal_bytes(blocks.nbytes, communicator.size)

    def payloads(self, bucket: Bucket) -> list[int]:
        return [blocks_for(bucket.stop - bucket.start) * HALF_BLOCK.itemsize]


# Made from the plan of a model's gradients and --compression-rank.
COMPRESSIONS: dict[str, Callable[[BucketPlan, int], BucketSum]] = {
    "none": lambda plan, rank: FullPrecisionSum(),
    "fp16": lambda plan, rank: HalfPrecisionSum(),
    "powersgd": PowerSGD,
}
