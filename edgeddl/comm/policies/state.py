"""A policy's state in checkpoints.

NAME         shared by all ranks
rank_NAME    of every rank: [rank][...]
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.policies import Policy


def capture_state(communicator: Communicator, policy: Policy) -> dict[str, np.ndarray]:
    """Collective: the state on rank 0, which writes checkpoints; nothing on the other ranks."""
    arrays = {}
    for name, own in policy.rank_state().items():
        # Only rank 0 gathers: on every rank, the state of all ranks would take N times the memory.
        shape = (communicator.size, *own.shape)
        by_rank = np.zeros(shape, own.dtype) if communicator.rank == 0 else None
        communicator.gather_array(own, by_rank)
        if by_rank is not None:
            arrays[f"rank_{name}"] = by_rank
    return {**arrays, **policy.shared_state()} if communicator.rank == 0 else {}


def expected_state(policy: Policy, ranks: int) -> dict[str, np.ndarray]:
    """Arrays of the shapes that a checkpoint written by `ranks` ranks has."""
    by_rank = {
        f"rank_{name}": np.broadcast_to(own, (ranks, *own.shape))
        for name, own in policy.rank_state().items()
    }
    return {**by_rank, **policy.shared_state()}


def restore_state(
    communicator: Communicator,
    policy: Policy,
    arrays: Mapping[str, np.ndarray] | None,
    ranks: int,
) -> None:
    """Collective: restore what `ranks` ranks captured; only rank 0 passes the arrays."""
    same_ranks = ranks == communicator.size
    for name, own in policy.rank_state().items():
        part = np.zeros_like(own)
        for rank in range(ranks if same_ranks else 1):
            if arrays is not None:
                by_rank = arrays[f"rank_{name}"]
                part[...] = by_rank[rank] if same_ranks else by_rank.sum(axis=0) / communicator.size
            communicator.broadcast(part)
            if rank == communicator.rank or not same_ranks:
                own[...] = part
    for name, shared in policy.shared_state().items():
        if arrays is not None:
            shared[...] = arrays[name]
        communicator.broadcast(shared)
