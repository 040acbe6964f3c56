"""A compression policy of your own: `--compression docs.examples.round_robin:RoundRobin`.

Each step sends a quarter of the gradients, later steps send the rest (Stich, arXiv:1809.07599).
"""

import numpy as np

from edgeddl.comm.communicator import optimal_bytes
from edgeddl.comm.policies import Policy


class RoundRobin(Policy):
    description = "a quarter of the gradients"
    splittable = False  # a bucket has one offset

    def __init__(self, plan, compression_rank):
        super().__init__(plan, compression_rank)
        self.unsent = np.zeros(plan.length, np.float32)
        self.offsets = {slot.start: np.zeros(1, np.float32) for slot in plan.slots}

    def sum(self, communicator, bucket, gradients):
        unsent, offset = self.unsent[bucket.start : bucket.stop], self.offsets[bucket.start]
        unsent += gradients
        chosen = slice(int(offset[0]), None, 4)
        message = unsent[chosen].copy()
        communicator.allreduce(message)
        gradients[...] = unsent[chosen] = 0
        gradients[chosen] = message
        offset[...] = (offset + 1) % 4
        return optimal_bytes(message.nbytes, communicator.size)

    def payloads(self, bucket):
        return [bucket.stop - bucket.start]  # in bytes: a quarter of float32

    def shared_state(self):
        return {f"offset/{start}": offset for start, offset in self.offsets.items()}

    def rank_state(self):
        return {"unsent": self.unsent}
