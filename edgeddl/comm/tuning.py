"""Which algorithm sums a bucket: from its size, the number of ranks and the measured links."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.model import LinkModel, Timing, fit_link

# Where the algorithms are compared: from what a hundred-thousandth of a second carries on gigabit
# Ethernet to where time is proportional to size. On 100 Mbit/s the whole takes two seconds.
COMPARED_BYTES = (16 * 2**10, 128 * 2**10, 2**20)
CALIBRATION_BYTES = (128 * 2**10, 4 * 2**20)
# The ring leaves the processor to computing, which this comparison cannot see: MPI's algorithm has
# to be faster by more than this to be taken.
RING_BONUS = 1.2
REPEATS = 3


@dataclass(frozen=True)
class AllreduceChoice:
    """The ring from a size on, MPI's own algorithm below it; or always the same one."""

    small: str
    large: str
    large_from_bytes: float = 0

    def __call__(self, payload_bytes: int) -> str:
        return self.large if payload_bytes >= self.large_from_bytes else self.small

    def __str__(self) -> str:
        if self.large_from_bytes == 0 or self.small == self.large:
            return self.large
        if self.large_from_bytes == np.inf:
            return self.small
        return f"{self.large} from {self.large_from_bytes / 1024:.0f} KiB on, else {self.small}"


@dataclass(frozen=True)
class Tuning:
    """What was found out about the links, the same on all ranks, and what follows from it."""

    choice: AllreduceChoice
    link: LinkModel


def tune(communicator: Communicator, algorithm: str) -> Tuning:
    """Collective: look at the links; choose, unless `algorithm` says which one ("auto": choose)."""
    link = fit_link(
        [
            Timing(communicator.size, size, time_allreduce(communicator, size, "ring"))
            for size in CALIBRATION_BYTES
        ]
    )
    if algorithm != "auto":
        return Tuning(AllreduceChoice(algorithm, algorithm), link)
    return Tuning(AllreduceChoice("mpi", "ring", _ring_wins_from(communicator)), link)


def time_allreduce(
    communicator: Communicator, size_bytes: int, algorithm: str, repeats: int = REPEATS
) -> float:
    """Median of what the slowest rank took; the first, which makes connections, does not count."""
    array = np.zeros(size_bytes // 4, np.float32)
    own = []
    for _ in range(repeats + 1):
        communicator.allreduce(np.zeros(1), "mpi")
        started = time.perf_counter()
        communicator.allreduce(array, algorithm)
        own.append(time.perf_counter() - started)
    slowest = np.max(communicator.allgather(own[1:]), axis=0)
    return float(np.median(slowest))


def _ring_wins_from(communicator: Communicator) -> float:
    """The smallest compared size from which on the ring is faster; infinity where it never is."""
    smallest = np.inf
    for size in reversed(COMPARED_BYTES):
        ring, mpi = (time_allreduce(communicator, size, name) for name in ("ring", "mpi"))
        if ring > RING_BONUS * mpi:
            break
        smallest = size
    return smallest if smallest > COMPARED_BYTES[0] else 0
