"""Full precision: gradients travel as they are, in float32."""

from __future__ import annotations

import numpy as np

from edgeddl.comm.bucket import ITEM_BYTES, Bucket
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.policies import Policy


class FullPrecision(Policy):
    """One all-reduce for each bucket, in place."""

    description = "float32"

    def sum(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        communicator.allreduce(gradients)
        return optimal_bytes(gradients.nbytes, communicator.size)

    def payloads(self, bucket: Bucket) -> list[int]:
        return [(bucket.stop - bucket.start) * ITEM_BYTES]

    def buffer_bytes(self, bucket: Bucket) -> int:
        return 0
