"""What an all-reduce costs: the alpha-beta model, and its calibration. Pure.

A ring over N ranks takes 2 (N - 1) turns, in each of which every rank passes one message of 1/N of
the bytes to its neighbour:

    seconds = 2 (N - 1) (alpha + bytes / (N beta))

alpha is what a turn takes however short the message, beta what a link carries each second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

# Alpha and beta are found one from the other: each time what is left of the error is far smaller.
ROUNDS = 4


@dataclass(frozen=True)
class Timing:
    """An all-reduce that was measured."""

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
    """Bytes a second over each link and direction: 2 (N - 1) / N of the payload travels there."""
    return 2 * (ranks - 1) / ranks * payload_bytes / seconds


def fit_link(timings: Sequence[Timing]) -> LinkModel:
    """alpha from the shortest all-reduces, beta from the longest; neither is below zero.

    Those between may in part pass links in bursts, and would say that a turn takes less than
    nothing. Medians: they may have been measured on several numbers of ranks.
    """
    sizes = [one.payload_bytes for one in timings]
    shortest = [one for one in timings if one.payload_bytes == min(sizes)]
    longest = [one for one in timings if one.payload_bytes == max(sizes)]
    alpha = 0.0
    byte_seconds = median(_in_a_turn(one) / _sent_in_a_turn(one) for one in longest)
    for _ in range(ROUNDS if min(sizes) < max(sizes) else 0):
        rest = median(_in_a_turn(one) - _sent_in_a_turn(one) * byte_seconds for one in shortest)
        without = median((_in_a_turn(one) - rest) / _sent_in_a_turn(one) for one in longest)
        if rest < 0 or without <= 0:  # noise: then the longest say what they can
            break
        alpha, byte_seconds = rest, without
    return LinkModel(alpha, 1 / byte_seconds)


def _in_a_turn(timing: Timing) -> float:
    """Seconds."""
    return timing.seconds / (2 * (timing.ranks - 1))


def _sent_in_a_turn(timing: Timing) -> float:
    """Bytes, by each rank."""
    return timing.payload_bytes / timing.ranks
