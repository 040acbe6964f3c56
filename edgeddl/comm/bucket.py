"""Divides gradients into buckets: pure arithmetic, the same on every rank.

Parameters are placed in one flat buffer, in the order in which backward produces their gradients.
Consecutive parameters form a bucket, the unit of an all-reduce.
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
# No computation is left to overlap with the last bucket, so a smaller one means a shorter wait.
LAST_BUCKET_FRACTION = 1 / 16


class Use(StrEnum):
    """How a model uses a parameter."""

    ONCE = "used once"
    SHARED = "used more than once"  # its gradient is complete only when backward ends
    UNUSED = "unused"
    FROZEN = "frozen"  # neither sent nor updated


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter: name, shape, axes in memory order (outermost first), and use."""

    name: str
    shape: tuple[int, ...]
    memory_axes: tuple[int, ...]
    use: Use = Use.ONCE

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Slot:
    """The position of a parameter in the flat buffer, in elements."""

    spec: ParameterSpec
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.spec.count


@dataclass(frozen=True)
class Bucket:
    """Consecutive slots; [start, stop) includes their padding."""

    slots: tuple[Slot, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class BucketPlan:
    """The layout of the flat buffer: length in elements, and buckets in the order they leave.

    Frozen parameters follow the last bucket.
    """

    length: int
    buckets: tuple[Bucket, ...]
    frozen: tuple[Slot, ...] = ()
    bucket_bytes: int = 0  # the size that buckets aim at

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of the parameters that are trained."""
        return tuple(slot for bucket in self.buckets for slot in bucket.slots)

    @property
    def all_slots(self) -> tuple[Slot, ...]:
        return self.slots + self.frozen

    @property
    def trained_length(self) -> int:
        """The end of the last bucket."""
        return self.buckets[-1].stop if self.buckets else 0

    @property
    def single_slots(self) -> tuple[Bucket, ...]:
        """One bucket for each trained parameter."""
        return tuple(Bucket((slot,), slot.start, slot.stop) for slot in self.slots)


def plan_buckets(specs: Sequence[ParameterSpec], bucket_bytes: int) -> BucketPlan:
    """Divide parameters into buckets of about `bucket_bytes`; the last one is smaller.

    A parameter is never split, and a bucket ends with the parameter that makes it reach that size.
    So a large weight shares a bucket with the small vectors before it, whose own bucket would have
    the same latency.
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
