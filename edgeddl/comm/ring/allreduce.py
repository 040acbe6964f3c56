"""All-reduce by a ring of byte streams: a rank's place in it, and what becomes of lost streams.

How the ring goes says kernels/reference/ring.py; kernels/csrc/ring.c does it.

Streams are sockets and not MPI's messages, because nobody else tells a thread that bytes have
arrived: MPI has to be asked, by spinning, at the expense of computing, or between naps, too late.
Nor are bytes copied on their way to the array or the room beside it. With ResNet-18 on four
emulated boards a step's all-reduces take 47 ms of processor time instead of the 84 ms of the same
ring over MPI (a profile of each).
"""

from __future__ import annotations

import contextlib
import socket
import threading

import numpy as np

from edgeddl.errors import CommunicationError
from edgeddl.kernels import ring_sum
from edgeddl.kernels.streams import Neighbours, StreamLost

# Who waits is woken when so much has arrived. With a quarter of it an all-reduce of 4 MiB between
# four emulated boards took 5.0 to 5.8 ms of processor time instead of 4.2 to 4.6, and no less time.
WAKING_BYTES = 512 * 2**10
LONGEST_SLEEP_MILLISECONDS = 1000  # then it looks by itself, whatever the system thinks of marks


class NeighbourGone(CommunicationError):
    """The connection to a neighbour is lost: a consequence of a failure, hardly the cause."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"the connection to rank {rank} is lost: {reason}")
        self.rank = rank


class Ring:
    """A rank's place in the ring: streams from its left and to its right neighbour."""

    def __init__(self, rank: int, size: int, left: socket.socket, right: socket.socket) -> None:
        self._rank, self._size = rank, size
        self._left, self._right = left, right
        self._in_use = threading.Lock()
        for stream in (left, right):
            stream.setblocking(False)

    def sum(self, array: np.ndarray) -> None:
        """Replace a contiguous array by its sum over all ranks, the same bits on all."""
        # Together the ranks have one array on its way, and an item that has arrived in part does
        # not go on. If each waited for more than this of it, all could wait for ever.
        most = (array.nbytes // self._size - array.itemsize) // 2
        place = Neighbours(
            self._rank,
            self._size,
            self._left,
            self._right,
            waking_bytes=max(min(WAKING_BYTES, most), 1),
            longest_sleep=LONGEST_SLEEP_MILLISECONDS,
        )
        try:
            with self._in_use:
                ring_sum(array, place)
        except StreamLost as lost:
            gone = (self._rank + (-1 if lost.is_left else 1)) % self._size
            raise NeighbourGone(gone, str(lost)) from lost

    def break_off(self) -> None:
        """Let whoever waits for this rank, or is this rank and waits, know that it is in vain."""
        for stream in (self._left, self._right):
            with contextlib.suppress(OSError):  # the neighbour has done so
                stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Once nobody sums any more: a closed stream's number may become that of another."""
        self.break_off()
        with self._in_use:
            self._left.close()
            self._right.close()
