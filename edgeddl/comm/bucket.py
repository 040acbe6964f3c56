"""How gradients are cut into buckets: pure arithmetic, the same on every rank.

Parameters come in the order in which backward produces their gradients. They are laid one behind
the other in one flat buffer, and consecutive ones form a bucket, the unit that is all-reduced. A
bucket leaves as soon as its last gradient is there, while backward goes on with the next ones; but
for a late one, if the reducer has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

ITEM_BYTES = 4  # everything is float32
# Each parameter starts on its own cache line (64 bytes on x86-64 and on the Cortex-A72), so vector
# loads are aligned and two threads never write to one line.
ALIGNMENT = 64 // ITEM_BYTES
# Nothing is left to compute while the last bucket travels: the smaller it is, the shorter the wait.
LAST_BUCKET_FRACTION = 1 / 16


class Use(StrEnum):
    """How a model uses a parameter."""

    ONCE = "used once"
    SHARED = "used more than once"  # its gradient is complete when backward ends, not before
    UNUSED = "unused"
    FROZEN = "frozen"  # neither sent nor updated


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter's name, shape, its axes in the order in which they lie in memory, and its use."""

    name: str
    shape: tuple[int, ...]
    memory_axes: tuple[int, ...]
    use: Use = Use.ONCE

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Slot:
    """The place of a parameter in the flat buffer, in elements."""

    spec: ParameterSpec
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.spec.count


@dataclass(frozen=True)
class Bucket:
    """Consecutive slots; [start, stop) covers their padding too."""

    slots: tuple[Slot, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class BucketPlan:
    """The whole flat buffer: its length in elements and its buckets, in the order they leave.

    Frozen parameters lie behind the last bucket.
    """

    length: int
    buckets: tuple[Bucket, ...]
    frozen: tuple[Slot, ...] = ()
    bucket_bytes: int = 0  # aimed at

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Of the parameters that are trained."""
        return tuple(slot for bucket in self.buckets for slot in bucket.slots)

    @property
    def all_slots(self) -> tuple[Slot, ...]:
        return self.slots + self.frozen

    @property
    def trained_length(self) -> int:
        """Where the last bucket ends."""
        return self.buckets[-1].stop if self.buckets else 0

    @property
    def single_slots(self) -> tuple[Bucket, ...]:
        """A bucket for each parameter."""
        return tuple(Bucket((slot,), slot.start, slot.stop) for slot in self.slots)


def plan_buckets(specs: Sequence[ParameterSpec], bucket_bytes: int) -> BucketPlan:
    """Cut parameters into buckets of about `bucket_bytes`, the last one smaller.

    A parameter is never split, and a bucket ends with the one by which it reaches that size. So a
    large weight takes the small vectors before it along: alone they would cost as many turns.
    """
    slots, end = _place([spec for spec in specs if spec.use is not Use.FROZEN], 0)
    frozen, length = _place([spec for spec in specs if spec.use is Use.FROZEN], end)
    tail_start = _tail_start(slots, end, bucket_bytes * LAST_BUCKET_FRACTION)
    groups = _fill(slots[:tail_start], bucket_bytes)
    if slots[tail_start:]:
        groups.append(slots[tail_start:])
    buckets = tuple(
        Bucket(tuple(group), group[0].start, _align(group[-1].stop)) for group in groups
    )
    return BucketPlan(length, buckets, tuple(frozen), bucket_bytes)


def _place(specs: Sequence[ParameterSpec], position: int) -> tuple[list[Slot], int]:
    slots = []
    for spec in specs:
        slots.append(Slot(spec, position))
        position = _align(position + spec.count)
    return slots, position


def _tail_start(slots: Sequence[Slot], length: int, tail_bytes: float) -> int:
    """Index of the first slot of the last bucket: at least one slot, at most `tail_bytes`."""
    index = max(len(slots) - 1, 0)
    while index > 0 and (length - slots[index - 1].start) * ITEM_BYTES <= tail_bytes:
        index -= 1
    return index


def _fill(slots: Sequence[Slot], bucket_bytes: int) -> list[list[Slot]]:
    groups: list[list[Slot]] = []
    for slot in slots:
        if groups and (groups[-1][-1].stop - groups[-1][0].start) * ITEM_BYTES < bucket_bytes:
            groups[-1].append(slot)
        else:
            groups.append([slot])
    return groups


def _align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
