"""Which algorithm sums a bucket: from its size and what was measured between these ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from edgeddl.comm.communicator import Choice, Communicator
from edgeddl.comm.model import LinkModel, Timing, fit_link
from edgeddl.errors import EdgeddlError
from edgeddl.log import logger

# Where the algorithms are compared. The ring has 2 (N - 1) turns where MPI's have about log N: that
# matters for the small. Still it takes far less time between hosts, for MPI's is looked for between
# naps (64 KiB on ten emulated boards: 2 ms and 30 ms), so the outcome is the same from run to run.
# Of fewer bytes MPI's are often there before the first nap, and the outcome would be chance.
SMALL_BYTES, LARGE_BYTES = 64 * 2**10, 2**20
# Where the ring begins if it wins for the large only.
RING_FROM_BYTES = 128 * 2**10
# The first says what a turn takes: more might pass a link in a burst, and hide it.
CALIBRATION_BYTES = (4 * 2**10, 4 * 2**20)
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


@dataclass(frozen=True)
class Always:
    """One algorithm for all sizes."""

    name: str

    def __call__(self, payload_bytes: int) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


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
    if not _ring_wins(communicator, LARGE_BYTES):
        return RingFrom(NEVER)
    return RingFrom(0 if _ring_wins(communicator, SMALL_BYTES) else RING_FROM_BYTES)


def _ring_wins(communicator: Communicator, size_bytes: int) -> bool:
    ring, mpi = (time_allreduce(communicator, size_bytes, name) for name in ("ring", "mpi"))
    return ring < RING_BONUS * mpi


def measure_link(communicator: Communicator, choice: Choice) -> LinkModel:
    """Collective: what a turn and a byte take, with the algorithm that is chosen for the large."""
    algorithm = choice(max(CALIBRATION_BYTES))
    return fit_link(
        [
            Timing(communicator.size, size, time_allreduce(communicator, size, algorithm))
            for size in CALIBRATION_BYTES
        ]
    )


def time_allreduce(communicator: Communicator, size_bytes: int, algorithm: str) -> float:
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
