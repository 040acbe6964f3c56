"""The cost of an all-reduce by the alpha-beta model, and its calibration. Pure.

A ring over N ranks takes 2 (N - 1) turns. In each turn, every rank sends one message of 1/N of the
bytes to its neighbour:

    seconds = 2 (N - 1) (alpha + bytes / (N beta))

alpha is the latency of a turn, beta the bandwidth of a link in bytes per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

# Alpha and beta are computed from each other; each round reduces the error by far.
ROUNDS = 4


@dataclass(frozen=True)
class Timing:
    """The measured time of an all-reduce."""

    ranks: int
    payload_bytes: int
    seconds: float


@dataclass(frozen=True)
class LinkModel:
    """alpha and beta of a cluster's links."""

    turn_seconds: float
    bytes_per_second: float

    def allreduce_seconds(self, payload_bytes: int, ranks: int) -> float:
        wire = payload_bytes / (ranks * self.bytes_per_second)
        return 2 * (ranks - 1) * (self.turn_seconds + wire)


def bus_bandwidth(payload_bytes: int, ranks: int, seconds: float) -> float:
    """Bytes per second over each link and direction, which carries 2 (N - 1) / N of the payload."""
    return 2 * (ranks - 1) / ranks * payload_bytes / seconds


def fit_link(timings: Sequence[Timing]) -> LinkModel:
    """Fit alpha to the shortest all-reduces and beta to the longest; neither is negative.

    All-reduces of medium size may pass links partly in bursts, which would make alpha negative.
    Medians are taken because timings may be of different numbers of ranks.
    """
    sizes = [one.payload_bytes for one in timings]
    shortest = [one for one in timings if one.payload_bytes == min(sizes)]
    longest = [one for one in timings if one.payload_bytes == max(sizes)]
    alpha = 0.0
    byte_seconds = median(_turn_seconds(one) / _turn_bytes(one) for one in longest)
    for _ in range(ROUNDS if min(sizes) < max(sizes) else 0):
        rest = median(_turn_seconds(one) - _turn_bytes(one) * byte_seconds for one in shortest)
        without = median((_turn_seconds(one) - rest) / _turn_bytes(one) for one in longest)
        if rest < 0 or without <= 0:  # noise: only the longest all-reduces count
            break
        alpha, byte_seconds = rest, without
    return LinkModel(alpha, 1 / byte_seconds)


def _turn_seconds(timing: Timing) -> float:
    """The time of one turn."""
    return timing.seconds / (2 * (timing.ranks - 1))


def _turn_bytes(timing: Timing) -> float:
    """The bytes that each rank sends in one turn."""
    return timing.payload_bytes / timing.ranks
