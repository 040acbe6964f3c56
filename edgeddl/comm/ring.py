"""A segmented, pipelined ring all-reduce over point-to-point messages.

The array is cut into one chunk a rank. In turn t of 2 (size - 1) every rank sends chunk rank - t
to its right neighbour and receives chunk rank - 1 - t from its left one. In the first size - 1
turns what arrives is added to the rank's own values, so that a chunk is complete when it has been
at every rank; in the others complete chunks go round once more. Every link carries 2 (size - 1) /
size of the array in each direction, the least possible.

Chunks travel in segments: one that has arrived goes on while the next is still on its way, so the
links never rest between turns. Two things make this faster than MPI's own ring on a board: several
segments are under way at a time, and who waits sleeps. MPI's waiting spins, which takes a core, or
half of the only one, from computing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

# Four segments let a chunk's first be forwarded long before its last arrives; much smaller ones
# cost more in Python and MPI than they save, larger ones fill the pipeline later.
SEGMENTS_PER_CHUNK = 4
SMALLEST_SEGMENT_BYTES = 64 * 2**10
LARGEST_SEGMENT_BYTES = 2**20  # as scripts/openmpi_defaults.py has it: sent without asking first
# Enough for a link of 1 Gbit/s to have work for the milliseconds that a busy board does not look.
WINDOW = 8
# Who waits looks about once for each segment that such a link carries, and not more seldom than
# this. With 2 ms instead of 0.5 an all-reduce took 50 ms of processor time instead of 72, and no
# longer; with 4 ms it took 6 % longer (four emulated nodes, 44.7 MB).
LONGEST_NAP_SECONDS = 0.002
LINK_BYTES_PER_SECOND = 2**27


class Transfer(Protocol):
    """A message under way."""

    def is_done(self) -> bool:
        """Whether it has left, or has arrived; also what makes it move on."""


class PointToPoint(Protocol):
    """Ranks that send each other messages; those between two ranks arrive in order."""

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def start_send(self, array: np.ndarray, destination: int) -> Transfer:
        """Begin to send; the array must not change until it is done."""

    def start_receive(self, array: np.ndarray, source: int) -> Transfer:
        """Begin to receive into the array."""


@dataclass(frozen=True)
class Piece:
    """A segment that arrives: [start, stop) of the array, to be added or, once complete, taken."""

    start: int
    stop: int
    adds: bool


@dataclass(frozen=True)
class RingPlan:
    """What one rank sends and receives, in order.

    Piece i that arrives is sent as piece i + own, after it: `sends` begins with the rank's own
    chunk, of `own` pieces, and goes on with what has arrived, except for the last turn.
    """

    sends: tuple[Piece, ...]
    receives: tuple[Piece, ...]
    own: int


def plan_ring(length: int, size: int, rank: int, segment: int) -> RingPlan:
    """All lengths in elements."""
    chunk = -(-length // size)
    bounds = [min(index * chunk, length) for index in range(size + 1)]

    def pieces(turn: int, index: int) -> list[Piece]:
        start, stop = bounds[index % size], bounds[index % size + 1]
        adds = turn < size - 1
        return [Piece(s, min(s + segment, stop), adds) for s in range(start, stop, segment)]

    turns = range(2 * (size - 1))
    return RingPlan(
        sends=tuple(piece for turn in turns for piece in pieces(turn, rank - turn)),
        receives=tuple(piece for turn in turns for piece in pieces(turn, rank - 1 - turn)),
        own=len(pieces(0, rank)),
    )


def segment_length(length: int, size: int, item_bytes: int) -> int:
    """Elements of a segment."""
    chunk = -(-length // size)
    wanted = -(-chunk // SEGMENTS_PER_CHUNK)
    smallest, largest = SMALLEST_SEGMENT_BYTES // item_bytes, LARGEST_SEGMENT_BYTES // item_bytes
    return min(max(wanted, smallest), largest)


def ring_sum(ranks: PointToPoint, array: np.ndarray) -> None:
    """Replace a contiguous array by its sum over all ranks, the same bits on all."""
    if ranks.size == 1 or not array.size:
        return
    array = _flat(array)
    segment = segment_length(array.size, ranks.size, array.itemsize)
    plan = plan_ring(array.size, ranks.size, ranks.rank, segment)
    incoming = _Incoming(ranks, array, plan.receives, segment)
    outgoing = _Outgoing(ranks, array, plan)
    nap = min(segment * array.itemsize / LINK_BYTES_PER_SECOND, LONGEST_NAP_SECONDS)
    while not (incoming.is_done and outgoing.is_done):
        arrived = incoming.take_arrived()
        moved = outgoing.send_on(incoming.taken)
        if not (arrived or moved):
            time.sleep(nap)


def _flat(array: np.ndarray) -> np.ndarray:
    """A view of the whole array with one axis; a copy would take the sum with it."""
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    return array.reshape(-1)


class _Incoming:
    """Receives pieces in order; those to be added arrive beside the array."""

    def __init__(
        self, ranks: PointToPoint, array: np.ndarray, pieces: Sequence[Piece], segment: int
    ) -> None:
        self._ranks = ranks
        self._source = (ranks.rank - 1) % ranks.size
        self._array = array
        self._pieces = pieces
        self._rooms = np.empty((min(WINDOW, len(pieces)), segment), array.dtype)
        self._under_way: deque[tuple[Transfer, np.ndarray]] = deque()
        self._asked = 0
        self.taken = 0
        self._ask()

    @property
    def is_done(self) -> bool:
        return self.taken == len(self._pieces)

    def take_arrived(self) -> bool:
        """Add or keep what has arrived; says whether anything had."""
        before = self.taken
        while self._under_way and self._under_way[0][0].is_done():
            _, values = self._under_way.popleft()
            piece = self._pieces[self.taken]
            if piece.adds:
                self._array[piece.start : piece.stop] += values
            self.taken += 1
            self._ask()
        return self.taken > before

    def _ask(self) -> None:
        while self._asked < len(self._pieces) and len(self._under_way) < len(self._rooms):
            piece = self._pieces[self._asked]
            if piece.adds:
                room = self._rooms[self._asked % len(self._rooms)][: piece.stop - piece.start]
            else:
                # What this rank has sent of it is part of what arrives: that send is over by then.
                room = self._array[piece.start : piece.stop]
            self._under_way.append((self._ranks.start_receive(room, self._source), room))
            self._asked += 1


class _Outgoing:
    """Sends pieces in order, each as soon as what it consists of has arrived."""

    def __init__(self, ranks: PointToPoint, array: np.ndarray, plan: RingPlan) -> None:
        self._ranks = ranks
        self._destination = (ranks.rank + 1) % ranks.size
        self._array = array
        self._plan = plan
        self._under_way: deque[Transfer] = deque()
        self._sent = 0

    @property
    def is_done(self) -> bool:
        return self._sent == len(self._plan.sends) and not self._under_way

    def send_on(self, arrived: int) -> bool:
        """Send what can be sent when so many pieces have arrived; says whether anything moved."""
        moved = False
        while self._under_way and self._under_way[0].is_done():
            self._under_way.popleft()
            moved = True
        ready = min(self._plan.own + arrived, len(self._plan.sends))
        while self._sent < ready and len(self._under_way) < WINDOW:
            piece = self._plan.sends[self._sent]
            values = self._array[piece.start : piece.stop]
            self._under_way.append(self._ranks.start_send(values, self._destination))
            self._sent += 1
            moved = True
        return moved
