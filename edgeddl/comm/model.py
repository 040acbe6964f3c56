"""What an all-reduce costs: the alpha-beta model, and its calibration. Pure.

A ring over N ranks takes 2 (N - 1) turns, in each of which every rank passes one message of 1/N of
the bytes to its neighbour:

    seconds = 2 (N - 1) (alpha + bytes / (N beta))

alpha is what a turn takes however short the message, beta what a link carries each second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
    """alpha and beta with the least squared error; neither is below zero.

    Each error counts as a part of its time: so short all-reduces decide alpha, and long ones beta.
    """
    turns = np.array([2.0 * (t.ranks - 1) for t in timings])
    wire = np.array([t.payload_bytes / t.ranks for t in timings]) * turns
    seconds = np.array([t.seconds for t in timings])
    weights = 1 / seconds
    columns = np.stack([turns, wire], axis=1) * weights[:, None]
    (alpha, inverse_beta), *_ = np.linalg.lstsq(columns, seconds * weights, rcond=None)
    if alpha <= 0 or inverse_beta <= 0:  # noise: then the largest of them says what it can
        largest = np.argmax(wire)
        alpha, inverse_beta = 0.0, seconds[largest] / wire[largest]
    return LinkModel(float(alpha), float(1 / inverse_beta))
