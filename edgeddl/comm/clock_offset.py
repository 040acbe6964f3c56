"""Measures the offsets between the clocks of hosts by round trips.

Rank 0 sends a message and the other rank answers with its time, which rank 0 assigns to the middle
of the round trip. The fastest of many round trips counts: the error is at most half of it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from edgeddl.comm.communicator import Communicator, Transfer
from edgeddl.errors import CommunicationError

ROUND_TRIPS = 40
# The watchdog observes collectives, not single messages. Rank 0 knows which rank does not answer,
# so its timeout is shorter than that of the others.
TIMEOUT_SECONDS, TIMEOUT_OF_OTHERS = 30.0, 60.0


class ClockFix(NamedTuple):
    """At a time of a rank's clock: the offset to rank 0's clock, and its largest error."""

    at: float
    offset: float
    uncertainty: float


def measure_offsets(communicator: Communicator) -> list[ClockFix]:
    """Collective: on rank 0 one fix for each rank; on the others nothing."""
    communicator.barrier()  # watched: the watchdog names ranks that do not join
    if communicator.rank != 0:
        for _ in range(ROUND_TRIPS):
            _receive(communicator, 0)
            _send(communicator, time.perf_counter(), 0)
        return []
    others = range(1, communicator.size)
    return [ClockFix(time.perf_counter(), 0.0, 0.0), *(_fix(communicator, one) for one in others)]


def _fix(communicator: Communicator, rank: int) -> ClockFix:
    return min(
        (_round_trip(communicator, rank) for _ in range(ROUND_TRIPS)),
        key=lambda fix: fix.uncertainty,
    )


def _round_trip(communicator: Communicator, rank: int) -> ClockFix:
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
    """Wait without sleeping, which would be measured, but yield the processor."""
    timeout = TIMEOUT_OF_OTHERS if communicator.rank else TIMEOUT_SECONDS
    deadline = time.monotonic() + timeout
    while not transfer.is_done():
        if time.monotonic() > deadline:
            raise CommunicationError(
                f"rank {rank} on {communicator.hosts[rank]} did not answer the clock probe",
                hint="check that host and its network; without --timeline there is no clock probe",
            )
        time.sleep(0)
