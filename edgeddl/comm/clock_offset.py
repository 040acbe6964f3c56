"""How far the clocks of hosts are apart, by messages that go to and fro.

Rank 0 sends, the other answers with its time, and rank 0 takes that for the middle of the way. The
quickest of many turns is the best: the error is at most half of it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from edgeddl.comm.communicator import Communicator, Transfer
from edgeddl.errors import CommunicationError

TURNS = 40
# The watchdog sees collectives, not single messages. Rank 0 knows who does not answer; the others,
# which wait until they are asked, shall not speak before it.
PATIENCE_SECONDS, PATIENCE_OF_OTHERS = 30.0, 60.0


class ClockFix(NamedTuple):
    """At a time of a rank's clock: what to add for rank 0's, and by how much that may be wrong."""

    at: float
    offset: float
    uncertainty: float


def measure_offsets(communicator: Communicator) -> list[ClockFix]:
    """Collective: on rank 0 one for each rank; on the others nothing."""
    communicator.barrier()  # under the watchdog's eyes: from here on all ranks are there
    if communicator.rank != 0:
        for _ in range(TURNS):
            _receive(communicator, 0)
            _send(communicator, time.perf_counter(), 0)
        return []
    others = range(1, communicator.size)
    return [ClockFix(time.perf_counter(), 0.0, 0.0), *(_fix(communicator, one) for one in others)]


def _fix(communicator: Communicator, rank: int) -> ClockFix:
    return min((_turn(communicator, rank) for _ in range(TURNS)), key=lambda fix: fix.uncertainty)


def _turn(communicator: Communicator, rank: int) -> ClockFix:
    sent = time.perf_counter()
    _send(communicator, sent, rank)
    there = _receive(communicator, rank)
    back = time.perf_counter()
    return ClockFix(there, (sent + back) / 2 - there, (back - sent) / 2)


def _send(communicator: Communicator, value: float, rank: int) -> None:
    _finish(communicator, communicator.start_send(np.array([value], np.float64), rank), rank)


def _receive(communicator: Communicator, rank: int) -> float:
    value = np.zeros(1, np.float64)
    _finish(communicator, communicator.start_receive(value, rank), rank)
    return float(value[0])


def _finish(communicator: Communicator, transfer: Transfer, rank: int) -> None:
    """Without naps, which would be measured; but others may have the processor."""
    patience = PATIENCE_OF_OTHERS if communicator.rank else PATIENCE_SECONDS
    deadline = time.monotonic() + patience
    while not transfer.is_done():
        if time.monotonic() > deadline:
            raise CommunicationError(
                f"rank {rank} on {communicator.hosts[rank]} does not tell its clock",
                hint="look at that host and its network; without --timeline nobody asks",
            )
        time.sleep(0)
