"""Policies: what travels on the wire when a bucket of gradients is summed over all ranks.

`--compression` chooses a policy from `edgeddl.registry`, or imports your own subclass of `Policy`
with `--compression package.module:Class` (docs/examples/round_robin.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from edgeddl.comm.bucket import Bucket, BucketPlan
from edgeddl.comm.communicator import Communicator
from edgeddl.errors import ConfigError
from edgeddl.kernels.matrices import Products
from edgeddl.registry import POLICIES, load

# Gradients of one bucket as products of thin matrices, which the optimizer multiplies itself.
FactoredGradients = Products


class Policy(ABC):
    """Sums buckets over all ranks; class attributes declare what it requires.

    bucket_mib: default of --bucket-mib
    needs_ring: only the ring can add what travels
    needs_identical_kernels: ranks compute the sum themselves, so their kernels must round alike
    splittable: parts of a bucket may be summed separately
    """

    bucket_mib: float = 4
    needs_ring = False
    needs_identical_kernels = False
    splittable = True

    def __init__(self, plan: BucketPlan, compression_rank: int) -> None:
        """For the gradients of `plan`; `compression_rank` is the value of --compression-rank."""
        self.plan = plan
        self.compression_rank = compression_rank

    @property
    def description(self) -> str:
        """What travels, as the start-up table shows it."""
        return type(self).__name__

    @abstractmethod
    def sum(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        """Replace the bucket's flat float32 gradients by their sum over all ranks: collective.

        The result must have the same bits on every rank. After `leave_factored`, the factors hold
        the sum instead. Returns the bytes this rank sent, counted as those of bandwidth-optimal
        all-reduces. Several threads call this at once, for different buckets or parts of one. It
        is not called if there is only one rank.
        """

    @abstractmethod
    def payloads(self, bucket: Bucket) -> list[int]:
        """The bytes of each all-reduce that a bucket takes."""

    def buffer_bytes(self, bucket: Bucket) -> int:
        """The memory that a bucket takes besides its gradients."""
        return sum(self.payloads(bucket))

    def leave_factored(self) -> Sequence[FactoredGradients]:
        """Leave the sums of the plan's buckets factored from now on, and return the factors.

        The default multiplies them out, so there are none. Factors hold the sum of a bucket from
        the end of one call of `sum` to the start of the next.
        """
        return ()

    def shared_state(self) -> Mapping[str, np.ndarray]:
        """What the next step needs and all ranks share, for checkpoints.

        The arrays are contiguous float32, and writing to them restores the state.
        """
        return {}

    def rank_state(self) -> Mapping[str, np.ndarray]:
        """What this rank has not sent yet (error feedback), likewise.

        In a run resumed with another number of ranks, each rank takes an equal part of the sum.
        """
        return {}


def find_policy(name: str) -> type[Policy]:
    """The policy that --compression names: registered, or the user's own."""
    found = load("compression", POLICIES.get(name, name))
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ConfigError(
            f"compression {name}: expected a subclass of edgeddl.comm.policies.Policy, not {found}"
        )
    return found
