"""A pipelined ring all-reduce over sockets between neighbours.

The array is split into one chunk per rank. In step t of 2 (size - 1) every rank sends chunk
rank - t to its right neighbour and receives chunk rank - 1 - t from its left neighbour. In the
first size - 1 steps (reduce-scatter) the received chunk is added to the rank's own values, so a
chunk is complete when it has visited every rank. In the other steps (all-gather) the complete
chunks go round once more. Every link carries 2 (size - 1) / size of the array in each direction,
the minimum.

The chunk received in one step is the chunk sent in the next. So there are no messages: a rank may
send its own chunk and as many more bytes as have arrived. The links never idle between steps.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgeddl.comm.ring.position import CLOSED, ConnectionLost, Position
from edgeddl.kernels.half_block import BLOCK, HALF_BLOCK
from edgeddl.kernels.layout import Array
from edgeddl.kernels.reference.half import decode_half, encode_half

ENDED = select.POLLERR | select.POLLHUP | select.POLLRDHUP | select.POLLNVAL


def ring_sum(array: Array, position: Position) -> None:
    """Replace a flat array by its sum over all ranks."""
    sends, receives = plan_ring(array.size, position.size, position.rank)
    incoming = _Incoming(position.left, array, receives)
    outgoing = _Outgoing(position.right, array, sends)
    bounds = _chunk_bounds(array.size, position.size)
    own = (bounds[position.rank + 1] - bounds[position.rank]) * array.itemsize
    while incoming.left or outgoing.left:
        received = incoming.receive()
        if not outgoing.send(own + incoming.whole_bytes) and not received:
            _wait(incoming, outgoing, position)


@dataclass(frozen=True)
class Span:
    """Items [start, stop) of the array; they are added to or, once complete, replaced."""

    start: int
    stop: int
    adds: bool


def plan_ring(length: int, size: int, rank: int) -> tuple[list[Span], list[Span]]:
    """The spans that one rank sends and receives, in order; empty spans are left out."""
    bounds = _chunk_bounds(length, size)

    def spans(first: int) -> list[Span]:
        chunks = [((first - step) % size, step < size - 1) for step in range(2 * (size - 1))]
        every = [Span(bounds[index], bounds[index + 1], adds) for index, adds in chunks]
        return [span for span in every if span.start < span.stop]

    return spans(rank), spans(rank - 1)


def _chunk_bounds(length: int, size: int) -> list[int]:
    """The start of each chunk, and the end of the last one; the last chunks may be empty."""
    chunk = -(-length // size)
    return [min(index * chunk, length) for index in range(size + 1)]


def _wait(incoming: _Incoming, outgoing: _Outgoing, position: Position) -> None:
    """Wait until enough bytes have arrived, or ready bytes can be sent.

    A finished direction is not polled: poll would report its end again and again.
    """
    poll = select.poll()
    if incoming.left:
        least = min(position.low_water_bytes, incoming.left)
        incoming.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        poll.register(incoming.socket, select.POLLIN)
    if outgoing.left:
        can_send = select.POLLOUT if outgoing.is_full else 0
        poll.register(outgoing.socket, select.POLLRDHUP | can_send)
    for number, event in poll.poll(position.poll_milliseconds):
        if number == outgoing.socket.fileno() and event & ENDED:
            error = outgoing.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            raise ConnectionLost(False, os.strerror(error) if error else CLOSED)


class _Incoming:
    """Spans to receive, one after the other; spans to be added are received into a buffer."""

    def __init__(self, connection: socket.socket, array: Array, spans: Sequence[Span]) -> None:
        self.socket = connection
        self._item_bytes = array.itemsize
        self._values = [array[span.start : span.stop] for span in spans]
        buffer = np.empty(max((values.size for values in self._values), default=0), array.dtype)
        self._arrivals = [
            buffer[: values.size] if span.adds else values
            for span, values in zip(spans, self._values, strict=True)
        ]
        self._span = self._offset = self._bytes = 0  # offset: in bytes, within the span
        self.left = sum(values.nbytes for values in self._values)

    @property
    def whole_bytes(self) -> int:
        """Bytes of items that have arrived completely."""
        return self._bytes - self._bytes % self._item_bytes

    def receive(self) -> bool:
        """Receive a part of a span, and add it if required; returns whether any bytes arrived."""
        if not self.left:
            return False
        values, arrival = self._values[self._span], self._arrivals[self._span]
        try:
            count = self.socket.recv_into(
                arrival.view(np.uint8).data[self._offset :], flags=socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectionLost(True, error.strerror or str(error)) from error
        if not count:
            raise ConnectionLost(True, CLOSED)
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
    """Spans to send, one after the other, as far as their values are complete."""

    def __init__(self, connection: socket.socket, array: Array, spans: Sequence[Span]) -> None:
        self.socket = connection
        self._spans = [array[span.start : span.stop].view(np.uint8).data for span in spans]
        self._span = self._offset = self._sent = 0
        self.left = sum(len(span) for span in self._spans)
        self.is_full = False  # the socket accepts no more bytes for now

    def send(self, ready: int) -> bool:
        """Send until `ready` bytes are sent in total; returns whether any were sent now."""
        before = self._sent
        self.is_full = False
        while self.left and self._sent < ready:
            span = self._spans[self._span]
            part = span[self._offset : self._offset + ready - self._sent]
            try:
                count = self.socket.send(part, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self.is_full = True
                break
            except OSError as error:
                raise ConnectionLost(False, error.strerror or str(error)) from error
            self._offset += count
            self._sent += count
            self.left -= count
            if self._offset == len(span):
                self._span, self._offset = self._span + 1, 0
        return self._sent > before
