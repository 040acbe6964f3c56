"""Chooses the all-reduce algorithm for each size, by measurements between these ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from edgeddl.comm.communicator import Choice, Communicator
from edgeddl.comm.model import LinkModel, Timing, fit_link
from edgeddl.errors import EdgeddlError
from edgeddl.log import logger

# The sizes at which algorithms are compared. The ring takes 2 (N - 1) turns, MPI's algorithms about
# log N, which matters for small arrays. Between hosts the ring is still much faster, because MPI's
# algorithms are polled between sleeps (64 KiB on ten emulated boards: 2 ms and 30 ms). So the
# result is the same from run to run. Smaller arrays often arrive before the first sleep, so the
# result would be random.
SMALL_BYTES, LARGE_BYTES = 64 * 2**10, 2**20
# The smallest size for the ring if it wins for large arrays only.
RING_FROM_BYTES = 128 * 2**10
# The first size shows the latency of a turn. A larger array might pass a link in a burst.
CALIBRATION_BYTES = (4 * 2**10, 4 * 2**20)
# The ring takes less processor time from computation, which this comparison cannot measure. So
# MPI's algorithm has to be faster by more than this factor.
RING_BONUS = 1.2
REPEATS = 3
NEVER = 2**62


@dataclass(frozen=True)
class RingFrom:
    """The ring from a size on; below it Open MPI's algorithm, which needs fewer turns.

    None: there are no links, or neighbours could not connect. Open MPI's algorithm is used, but
    nothing is decided.
    """

    size_bytes: int | None

    def __call__(self, payload_bytes: int) -> str:
        return "mpi" if self.size_bytes is None or payload_bytes < self.size_bytes else "ring"

    def __str__(self) -> str:
        if self.size_bytes in (None, NEVER):
            return "mpi"
        return f"ring from {self.size_bytes // 1024} KiB on" if self.size_bytes else "ring"


@dataclass(frozen=True)
class Always:
    """One algorithm for all sizes."""

    name: str

    def __call__(self, payload_bytes: int) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


def choose_ring_from(communicator: Communicator) -> RingFrom:
    """Collective: compare the ring with Open MPI's algorithm.

    Only between hosts: within one host, memory is so fast that Open MPI's algorithm always wins.
    """
    if communicator.medium != "network":
        return RingFrom(None)
    try:
        communicator.allreduce(np.zeros(1), "ring")  # opens the connections
    except EdgeddlError as error:
        if not error.on_all_ranks:
            raise
        if communicator.rank == 0:
            reason = error.message.splitlines()[0]  # of one rank; others may have other reasons
            logger.warning(
                "the ring is unavailable; using Open MPI's slower all-reduce: %s", reason
            )
        return RingFrom(None)
    if not _ring_wins(communicator, LARGE_BYTES):
        return RingFrom(NEVER)
    return RingFrom(0 if _ring_wins(communicator, SMALL_BYTES) else RING_FROM_BYTES)


def _ring_wins(communicator: Communicator, size_bytes: int) -> bool:
    ring, mpi = (time_allreduce(communicator, size_bytes, name) for name in ("ring", "mpi"))
    return ring < RING_BONUS * mpi


def measure_link(communicator: Communicator, choice: Choice) -> LinkModel:
    """Collective: measure latency and bandwidth with the algorithm chosen for large arrays."""
    algorithm = choice(max(CALIBRATION_BYTES))
    return fit_link(
        [
            Timing(communicator.size, size, time_allreduce(communicator, size, algorithm))
            for size in CALIBRATION_BYTES
        ]
    )


def time_allreduce(communicator: Communicator, size_bytes: int, algorithm: str) -> float:
    """The median time of the slowest rank, without the first call, which opens connections."""
    array = np.zeros(size_bytes // 4, np.float32)
    own = []
    for _ in range(1 + REPEATS):
        communicator.allreduce(np.zeros(1), "mpi")  # start together
        started = time.perf_counter()
        communicator.allreduce(array, algorithm)
        own.append(time.perf_counter() - started)
    slowest = np.max(communicator.allgather(own[1:]), axis=0)
    return float(np.median(slowest))
