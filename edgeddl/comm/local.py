"""Ranks without MPI: a single process, or N threads of one process.

Threads are for tests and debuggers. Sums are computed in the order of ranks, so results are
reproducible.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np

from edgeddl import log
from edgeddl.comm.communicator import Choice, Communicator, Transfer
from edgeddl.comm.ring import NeighbourGone, Ring
from edgeddl.errors import CommunicationError

Result = TypeVar("Result")


class SingleCommunicator:
    """A single rank: no call sends anything or waits."""

    rank = 0
    size = 1
    medium = "nothing"

    def __init__(self) -> None:
        self.host = socket.gethostname()
        self.hosts = [self.host]

    def allreduce(self, array: np.ndarray, algorithm: str | None = None) -> None:
        pass

    def choose(self, choice: Choice) -> None:
        pass

    def channels(self, count: int) -> list[Communicator]:
        return [self] * count

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        pass

    def allgather_array(self, send: np.ndarray, receive: np.ndarray) -> None:
        receive[0] = send

    def gather_array(self, send: np.ndarray, receive: np.ndarray | None) -> None:
        assert receive is not None
        receive[0] = send

    def start_send(self, array: np.ndarray, destination: int) -> Transfer:
        raise CommunicationError("a single rank cannot send")

    def start_receive(self, array: np.ndarray, source: int) -> Transfer:
        raise CommunicationError("a single rank cannot receive")

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        pass

    def post_progress(self, count: int) -> None:
        pass

    def read_progress(self) -> list[tuple[int, float]]:
        return [(0, 0.0)]

    def abort(self, exit_code: int) -> NoReturn:
        raise SystemExit(exit_code)

    def close(self) -> None:
        pass


class Mailbox:
    """Messages from one thread to another, in order."""

    def __init__(self) -> None:
        self.messages: deque[np.ndarray] = deque()
        self.waiting: deque[_Reception] = deque()


class _Sent:
    """A message that was copied, so it is sent."""

    def is_done(self) -> bool:
        return True


class _Reception:
    """An expected message; messages arrive in the order in which they were expected."""

    def __init__(self, group: ThreadGroup, mailbox: Mailbox, array: np.ndarray) -> None:
        self._group, self._mailbox, self._array = group, mailbox, array
        self._arrived = False
        mailbox.waiting.append(self)

    def is_done(self) -> bool:
        self._group.check_alive()
        mailbox = self._mailbox
        while not self._arrived and mailbox.messages:
            mailbox.waiting.popleft().take(mailbox.messages.popleft())
        return self._arrived

    def take(self, message: np.ndarray) -> None:
        self._array[...] = message
        self._arrived = True


class ThreadGroup:
    """What the ranks of one process share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size
        pairs = itertools.product(range(size), repeat=2)  # source, destination
        self.mailboxes = {pair: Mailbox() for pair in pairs}
        self.channels: list[ThreadGroup] = []  # aborted and closed with this group
        self._lock = threading.Lock()
        self._rings: list[Ring] = []  # created at the first use
        self.progress = [(0, time.monotonic())] * size
        self.aborted_by: int | None = None

    def abort(self, rank: int) -> None:
        if self.aborted_by is None:
            self.aborted_by = rank
        self.barrier.abort()
        with self._lock:
            for ring in self._rings:
                ring.break_off()
        for channel in self.channels:
            channel.abort(rank)

    def ring(self, rank: int) -> Ring:
        with self._lock:
            self.check_alive()
            if not self._rings:
                pairs = [socket.socketpair() for _ in range(self.size)]  # from a rank to the next
                self._rings = [
                    Ring(one, self.size, left=pairs[one - 1][1], right=pairs[one][0])
                    for one in range(self.size)
                ]
            return self._rings[rank]

    def close(self) -> None:
        for group in (self, *self.channels):
            for ring in group._rings:
                ring.close()

    def check_alive(self) -> None:
        if self.barrier.broken:
            raise _EndedByAnother(f"rank {self.aborted_by} ended the job")


class ThreadCommunicator:
    """One of N ranks that are threads of one process."""

    medium = "threads"

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self._group = group
        self.rank = rank
        self.size = group.size
        self._choice: Choice = lambda size: "mpi"
        self.host = f"thread-{rank}"
        self.hosts = [f"thread-{other}" for other in range(group.size)]

    def choose(self, choice: Choice) -> None:
        self._choice = choice

    def channels(self, count: int) -> list[Communicator]:
        made: list[ThreadGroup] = []
        if self.rank == 0:
            made = [ThreadGroup(self.size) for _ in range(count)]
            self._group.channels += made
        groups = self.allgather(made)[0]
        channels = [ThreadCommunicator(group, self.rank) for group in groups]
        for channel in channels:
            channel.choose(self._choice)
        return list(channels)

    def allreduce(self, array: np.ndarray, algorithm: str | None = None) -> None:
        if (algorithm or self._choice(array.nbytes)) == "ring":
            self._sum_by_ring(array)
            return
        result = array.copy()
        for rank, other in enumerate(self._exchange(array)):
            if rank == 0:
                result[...] = other
            else:
                result += other
        self._wait()  # until all ranks have read all arrays
        array[...] = result

    def _sum_by_ring(self, array: np.ndarray) -> None:
        try:
            self._group.ring(self.rank).sum(array)
        except NeighbourGone:
            self._group.check_alive()
            raise

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        source = self._exchange(array)[root]
        if self.rank != root:
            array[...] = source
        self._wait()

    def allgather_array(self, send: np.ndarray, receive: np.ndarray) -> None:
        for rank, other in enumerate(self._exchange(send)):
            receive[rank] = other
        self._wait()

    def gather_array(self, send: np.ndarray, receive: np.ndarray | None) -> None:
        others = self._exchange(send)
        if receive is not None:
            for rank, other in enumerate(others):
                receive[rank] = other
        self._wait()

    def start_send(self, array: np.ndarray, destination: int) -> Transfer:
        self._group.mailboxes[self.rank, destination].messages.append(array.copy())
        return _Sent()

    def start_receive(self, array: np.ndarray, source: int) -> Transfer:
        return _Reception(self._group, self._group.mailboxes[source, self.rank], array)

    def allgather(self, value: Any) -> list[Any]:
        values = self._exchange(value)
        self._wait()
        return values

    def barrier(self) -> None:
        self._wait()

    def post_progress(self, count: int) -> None:
        self._group.progress[self.rank] = (count, time.monotonic())

    def read_progress(self) -> list[tuple[int, float]]:
        now = time.monotonic()
        return [(count, now - heard) for count, heard in self._group.progress]

    def abort(self, exit_code: int) -> NoReturn:
        self._group.abort(self.rank)
        raise CommunicationError(f"rank {self.rank} ended the job with exit code {exit_code}")

    def close(self) -> None:
        self._wait()

    def _exchange(self, value: Any) -> list[Any]:
        """The values of all ranks, valid until the next `_wait`."""
        self._group.slots[self.rank] = value
        self._wait()
        return list(self._group.slots)

    def _wait(self) -> None:
        try:
            self._group.barrier.wait()
        except threading.BrokenBarrierError:
            self._group.check_alive()
            raise


class _EndedByAnother(CommunicationError):
    """A consequence of another rank's failure."""


def run_ranks(size: int, work: Callable[[Communicator], Result]) -> list[Result]:
    """Run `work` as `size` ranks in threads of this process; returns their results by rank.

    The first rank that fails ends the others; its exception is raised here.
    """
    group = ThreadGroup(size)
    results: list[Any] = [None] * size
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        log.set_rank(rank, size, f"thread-{rank}")
        try:
            results[rank] = work(ThreadCommunicator(group, rank))
        except BaseException as error:
            failures.append(error)
            group.abort(rank)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank-{rank}") for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    group.close()
    if failures:
        raise next((f for f in failures if not isinstance(f, _EndedByAnother)), failures[0])
    return results
