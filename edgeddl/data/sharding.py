"""Assigns images to ranks: pure functions with the same result on every rank."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgeddl.data.randomness import derive_key, draw_bits

_STREAM = 1  # independent of the draws of the augmentation


def epoch_permutation(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """The order in which an epoch visits `count` images."""
    keys = draw_bits(derive_key(seed, _STREAM, epoch), np.arange(count))
    return np.argsort(keys, kind="stable").astype(np.int64)


def split_evenly(count: int, parts: int, index: int) -> tuple[int, int]:
    """Start and stop of part `index` of `count` items; the first `count % parts` have one more."""
    share, remainder = divmod(count, parts)
    start = index * share + min(index, remainder)
    return start, start + share + (index < remainder)


def split_by_speed(count: int, speeds: Sequence[float], limit: int | None = None) -> list[int]:
    """Split `count` items among parts of these relative speeds to minimise the time of the slowest.

    Each part first gets one item, the fastest part first. Every further item goes to the part that
    would finish it first. No part gets more than `limit`, and the limits must add up to at least
    `count`. With fewer items no part gets more than before. Equal speeds give the same split as
    `split_evenly`.
    """
    shares = [0] * len(speeds)
    # Only divisions: IEEE 754 then gives the same bits on every processor and Python.
    ends = [(False, 1 / speed, part) for part, speed in enumerate(speeds)]
    heapq.heapify(ends)
    for _ in range(count):
        part = ends[0][2]
        shares[part] += 1
        if shares[part] == limit:
            heapq.heappop(ends)
        else:
            heapq.heapreplace(ends, (True, (shares[part] + 1) / speeds[part], part))
    return shares
