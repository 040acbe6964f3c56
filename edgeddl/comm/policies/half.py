"""Half precision on the wire, in blocks that share a power of two (kernels/half_block.py)."""

from __future__ import annotations

import numpy as np

from edgeddl.comm.bucket import Bucket, BucketPlan
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.policies import Policy
from edgeddl.kernels import decode_half, encode_half
from edgeddl.kernels.half_block import HALF_BLOCK, blocks_for, empty_blocks


class HalfPrecision(Policy):
    """Encodes a bucket, sums it over the ring and decodes it.

    It needs the ring because MPI cannot add blocks. Each rank adds its own numbers to those that
    arrive in float32, and rounds what it sends on.
    """

    description = "half precision"
    needs_ring = True

    def __init__(self, plan: BucketPlan, compression_rank: int) -> None:
        super().__init__(plan, compression_rank)
        # by channel too, because several channels may sum buckets of the same length at once
        self._blocks: dict[tuple[Communicator, int], np.ndarray] = {}

    def sum(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        length = gradients.size
        if not length:
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
