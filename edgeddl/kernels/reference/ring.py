"""A pipelined ring all-reduce over byte streams between neighbours.

The array is cut into one chunk a rank. In turn t of 2 (size - 1) every rank sends chunk rank - t
to its right neighbour and receives chunk rank - 1 - t from its left one. In the first size - 1
turns what arrives is added to the rank's own values, so that a chunk is complete when it has been
at every rank; in the others complete chunks go round once more. Every link carries 2 (size - 1) /
size of the array in each direction, the least possible.

What arrives in one turn is what is sent in the next. So there are no messages: a rank may send as
many bytes as its own chunk has, and as many more as have arrived. The links never rest between
turns.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgeddl.kernels.halves import BLOCK, HALF_BLOCK
from edgeddl.kernels.layout import Array
from edgeddl.kernels.reference.half import decode_half, encode_half
from edgeddl.kernels.streams import CLOSED, Neighbours, StreamLost

ENDED = select.POLLERR | select.POLLHUP | select.POLLRDHUP | select.POLLNVAL


def ring_sum(array: Array, place: Neighbours) -> None:
    """Replace the array by its sum over all ranks."""
    sends, receives = plan_ring(array.size, place.size, place.rank)
    incoming = _Incoming(place.left, array, receives)
    outgoing = _Outgoing(place.right, array, sends)
    bounds = _chunk_bounds(array.size, place.size)
    own = (bounds[place.rank + 1] - bounds[place.rank]) * array.itemsize
    while incoming.left or outgoing.left:
        took = incoming.take()
        if not outgoing.send(own + incoming.whole_bytes) and not took:
            _sleep(incoming, outgoing, place)


@dataclass(frozen=True)
class Span:
    """Items [start, stop) of the array, to be added or, once complete, taken as they are."""

    start: int
    stop: int
    adds: bool


def plan_ring(length: int, size: int, rank: int) -> tuple[list[Span], list[Span]]:
    """What one rank sends and what it receives, in order; empty spans are left out."""
    bounds = _chunk_bounds(length, size)

    def spans(first: int) -> list[Span]:
        chunks = [((first - turn) % size, turn < size - 1) for turn in range(2 * (size - 1))]
        every = [Span(bounds[index], bounds[index + 1], adds) for index, adds in chunks]
        return [span for span in every if span.start < span.stop]

    return spans(rank), spans(rank - 1)


def _chunk_bounds(length: int, size: int) -> list[int]:
    """Where each rank's chunk begins, and the end; the last ones may be empty."""
    chunk = -(-length // size)
    return [min(index * chunk, length) for index in range(size + 1)]


def _sleep(incoming: _Incoming, outgoing: _Outgoing, place: Neighbours) -> None:
    """Until enough bytes have arrived, or what is to be sent can be.

    A stream of which nothing more is wanted stays out: its end would be told again and again.
    """
    poll = select.poll()
    if incoming.left:
        least = min(place.waking_bytes, incoming.left)
        incoming.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        poll.register(incoming.stream, select.POLLIN)
    if outgoing.left:
        can_send = select.POLLOUT if outgoing.is_full else 0
        poll.register(outgoing.stream, select.POLLRDHUP | can_send)
    for number, event in poll.poll(place.longest_sleep):
        if number == outgoing.stream.fileno() and event & ENDED:
            met = outgoing.stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            raise StreamLost(False, os.strerror(met) if met else CLOSED)


class _Incoming:
    """Spans that arrive one after the other; those to be added do so beside the array."""

    def __init__(self, stream: socket.socket, array: Array, spans: Sequence[Span]) -> None:
        self.stream = stream
        self._item_bytes = array.itemsize
        self._values = [array[span.start : span.stop] for span in spans]
        room = np.empty(max((values.size for values in self._values), default=0), array.dtype)
        self._arrivals = [
            room[: values.size] if span.adds else values
            for span, values in zip(spans, self._values, strict=True)
        ]
        self._span = self._offset = self._bytes = 0  # offset: of the span's bytes
        self.left = sum(values.nbytes for values in self._values)

    @property
    def whole_bytes(self) -> int:
        """Bytes of items that have arrived to their last byte."""
        return self._bytes - self._bytes % self._item_bytes

    def take(self) -> bool:
        """Add or keep what has arrived of a span; says whether anything had."""
        if not self.left:
            return False
        values, arrival = self._values[self._span], self._arrivals[self._span]
        try:
            count = self.stream.recv_into(
                arrival.view(np.uint8).data[self._offset :], flags=socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return False
        except OSError as error:
            raise StreamLost(True, error.strerror or str(error)) from error
        if not count:
            raise StreamLost(True, CLOSED)
        first = self._offset // self._item_bytes
        self._offset += count
        self._bytes += count
        self.left -= count
        if arrival is not values:
            whole = slice(first, self._offset // self._item_bytes)
            _add(values[whole], arrival[whole])
        if self._offset == values.nbytes:
            self._span, self._offset = self._span + 1, 0
        return True


def _add(values: Array, arrived: Array) -> None:
    if values.dtype != HALF_BLOCK:
        values += arrived
        return
    total, addend = (np.empty(values.size * BLOCK, np.float32) for _ in range(2))
    decode_half(values, total)
    decode_half(arrived, addend)
    encode_half(total + addend, values)


class _Outgoing:
    """Spans that are sent one after the other, as far as what they consist of is there."""

    def __init__(self, stream: socket.socket, array: Array, spans: Sequence[Span]) -> None:
        self.stream = stream
        self._spans = [array[span.start : span.stop].view(np.uint8).data for span in spans]
        self._span = self._offset = self._sent = 0
        self.left = sum(len(span) for span in self._spans)
        self.is_full = False  # the stream takes no more for now

    def send(self, ready: int) -> bool:
        """Send on, up to so many bytes in all; says whether any left."""
        before = self._sent
        self.is_full = False
        while self.left and self._sent < ready:
            span = self._spans[self._span]
            part = span[self._offset : self._offset + ready - self._sent]
            try:
                count = self.stream.send(part, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self.is_full = True
                break
            except OSError as error:
                raise StreamLost(False, error.strerror or str(error)) from error
            self._offset += count
            self._sent += count
            self.left -= count
            if self._offset == len(span):
                self._span, self._offset = self._span + 1, 0
        return self._sent > before
