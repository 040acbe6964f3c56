"""Which algorithm sums a bucket: from its size, the number of ranks and the measured links."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.model import LinkModel, Timing, fit_link
from edgeddl.errors import EdgeddlError
from edgeddl.log import logger

# The ring has 2 (N - 1) turns where MPI's algorithms have about log N. Between few ranks that does
# not matter: 4 KiB take 0.5 ms between four emulated boards, and 6 ms by MPI's, which is looked for
# between naps.
FEW_RANKS = 8
RING_FROM_BYTES = 128 * 2**10  # between more ranks
# Where the algorithms are compared. Between hosts the ring takes half the time or less there, so
# the outcome is the same from run to run.
COMPARED_BYTES = 2**20
CALIBRATION_BYTES = (128 * 2**10, 4 * 2**20)
# The ring leaves the processor to computing, which this comparison cannot see: MPI's algorithm has
# to be faster by more than this to be taken.
RING_BONUS = 1.2
REPEATS = 3
NEVER = 2**62


@dataclass(frozen=True)
class RingFrom:
    """The ring from a size on, below it MPI's own algorithm, which needs fewer turns.

    None: there are no links, or neighbours could not connect. So MPI's own for now, and nothing is
    decided.
    """

    size_bytes: int | None

    def __call__(self, payload_bytes: int) -> str:
        return "mpi" if self.size_bytes is None or payload_bytes < self.size_bytes else "ring"

    def __str__(self) -> str:
        if self.size_bytes in (None, NEVER):
            return "mpi"
        return f"ring from {self.size_bytes // 1024} KiB on" if self.size_bytes else "ring"


def ring_between(ranks: int) -> RingFrom:
    """Where the ring is to be taken at all."""
    return RingFrom(0 if ranks <= FEW_RANKS else RING_FROM_BYTES)


def choose_ring_from(communicator: Communicator) -> RingFrom:
    """Collective: compare the ring with MPI's own algorithm.

    Only between hosts. Within one, memory is so fast that MPI's own always wins.
    """
    if communicator.medium != "network":
        return RingFrom(None)
    try:
        communicator.allreduce(np.zeros(1), "ring")  # makes its connections
    except EdgeddlError as error:
        if not error.on_all_ranks:
            raise
        if communicator.rank == 0:
            reason = error.message.splitlines()[0]  # other ranks may have others
            logger.warning("gradients travel by Open MPI's own, slower messages: %s", reason)
        return RingFrom(None)
    ring, mpi = (time_allreduce(communicator, COMPARED_BYTES, name) for name in ("ring", "mpi"))
    if ring >= RING_BONUS * mpi:
        return RingFrom(NEVER)
    return ring_between(communicator.size)


def measure_link(communicator: Communicator) -> LinkModel:
    """Collective: what a turn and a byte take, with the algorithm that was chosen."""
    return fit_link(
        [
            Timing(communicator.size, size, time_allreduce(communicator, size, None))
            for size in CALIBRATION_BYTES
        ]
    )


def time_allreduce(communicator: Communicator, size_bytes: int, algorithm: str | None) -> float:
    """Median of what the slowest rank took; the first, which makes connections, does not count."""
    array = np.zeros(size_bytes // 4, np.float32)
    own = []
    for _ in range(1 + REPEATS):
        communicator.allreduce(np.zeros(1), "mpi")  # begin together
        started = time.perf_counter()
        communicator.allreduce(array, algorithm)
        own.append(time.perf_counter() - started)
    slowest = np.max(communicator.allgather(own[1:]), axis=0)
    return float(np.median(slowest))
