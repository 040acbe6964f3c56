"""A rank's end of the ring, and what happens when a connection is lost."""

from __future__ import annotations

import contextlib
import socket
import threading

import numpy as np

from edgeddl.comm.ring.binding import ring_sum
from edgeddl.comm.ring.position import ConnectionLost, Position
from edgeddl.errors import CommunicationError

# A waiting rank wakes up when this much has arrived. With a quarter of it, an all-reduce of 4 MiB
# between four emulated boards took 5.0 to 5.8 ms of processor time instead of 4.2 to 4.6 ms, and it
# was not faster.
LOW_WATER_BYTES = 512 * 2**10
POLL_MILLISECONDS = 1000  # it also wakes up after this time, in case SO_RCVLOWAT is ignored


class NeighbourGone(CommunicationError):
    """The connection to a neighbour is lost: the result of another failure, rarely the cause."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"the connection to rank {rank} is lost: {reason}")
        self.rank = rank


class Ring:
    """The connections from a rank's left and to its right neighbour."""

    def __init__(self, rank: int, size: int, left: socket.socket, right: socket.socket) -> None:
        self._rank, self._size = rank, size
        self._left, self._right = left, right
        self._in_use = threading.Lock()
        for connection in (left, right):
            connection.setblocking(False)

    def sum(self, array: np.ndarray) -> None:
        """Replace a contiguous array by its sum over all ranks: the same bits on all of them."""
        # The ranks together have one array in transit, and an incomplete item is not forwarded. If
        # every rank waited for more than this part of it, they would deadlock.
        limit = (array.nbytes // self._size - array.itemsize) // 2
        position = Position(
            self._rank,
            self._size,
            self._left,
            self._right,
            low_water_bytes=max(min(LOW_WATER_BYTES, limit), 1),
            poll_milliseconds=POLL_MILLISECONDS,
        )
        try:
            with self._in_use:
                ring_sum(array, position)
        except ConnectionLost as lost:
            gone = (self._rank + (-1 if lost.is_left else 1)) % self._size
            raise NeighbourGone(gone, str(lost)) from lost

    def break_off(self) -> None:
        """Shut the connections down: threads that wait on them, here or at a neighbour, fail."""
        for connection in (self._left, self._right):
            with contextlib.suppress(OSError):  # the neighbour was first
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections once no sum is running: a closed file descriptor may be reused."""
        self.break_off()
        with self._in_use:
            self._left.close()
            self._right.close()
