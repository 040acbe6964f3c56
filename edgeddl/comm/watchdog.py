"""Names the ranks that have not arrived, instead of waiting for them without a word.

MPI waits for ever for a rank that hangs, was stopped, or sits behind a cut cable. The watchdog is
a thread on every rank that tells the others, now and then, how many collective operations this
rank has begun. Who waits too long can so say who is behind and whether it still gives signs of
life: first in a warning, then by ending the job.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from edgeddl.comm.communicator import Choice, Communicator, Transfer
from edgeddl.errors import CollectiveTimeout, CommunicationError
from edgeddl.log import logger, start_thread

# Signs of life are exchanged at least this often, and four times within the warning time.
LONGEST_INTERVAL_SECONDS = 5.0


class Watchdog:
    """Watches one rank's collectives from a thread of its own."""

    def __init__(
        self, communicator: Communicator, *, warning_seconds: float, timeout_seconds: float
    ) -> None:
        self._communicator = communicator
        self._warning_seconds = warning_seconds
        self._timeout_seconds = timeout_seconds
        self._interval = min(warning_seconds / 4, LONGEST_INTERVAL_SECONDS)
        self._begun = 0
        self._waits: dict[int, _Wait] = {}  # by thread: each channel of the ranks has one
        self._lock = threading.Lock()
        self._warned = False
        self._timeout: CollectiveTimeout | None = None
        self._closed = threading.Event()
        self._thread = start_thread(self._watch, "edgeddl-watchdog")

    @contextlib.contextmanager
    def collective(self, name: str) -> Iterator[None]:
        """A collective operation is under way in this block."""
        thread = threading.get_ident()
        with self._lock:
            self._begun += 1
            self._waits[thread] = _Wait(name, time.monotonic())
        self._warned = False
        try:
            yield
        except Exception as error:
            raise self._timeout or error from None
        finally:
            with self._lock:
                del self._waits[thread]

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(self._interval):
            self._communicator.post_progress(self._begun)
            progress = self._communicator.read_progress()
            with self._lock:
                waits, begun = list(self._waits.values()), self._begun
            if waits:
                self._judge(min(waits, key=lambda wait: wait.since), begun, progress)

    def _judge(self, wait: _Wait, begun: int, progress: list[tuple[int, float]]) -> None:
        """Who has begun fewer collectives than this rank is behind.

        All that this rank has completed was begun by everybody; what it waits in is the rest. Lanes
        number them in another order on each rank, but all begin the same ones.
        """
        waited = time.monotonic() - wait.since
        late = {
            rank: self._is_silent(heard)
            for rank, (count, heard) in enumerate(progress)
            if count < begun or self._is_silent(heard)
        }
        # One of those who wait speaks for all; the rest only act should it be unable to.
        speaks = self._communicator.rank == min(set(range(len(progress))) - late.keys(), default=0)
        if waited > self._timeout_seconds + (0 if speaks else 2 * self._interval):
            self._end_job(wait.name, waited, late)
        elif waited > self._warning_seconds and speaks and not self._warned:
            self._warned = True
            logger.warning("waited %.0f s in %s; %s", waited, wait.name, self._describe(late))

    def _end_job(self, name: str, waited: float, late: dict[int, bool]) -> None:
        self._timeout = CollectiveTimeout(
            f"gave up after {waited:.0f} s in {name}; {self._describe(late)}",
            ranks=tuple(late),
            hint="look at these hosts (power, network, memory); the run goes on from its last"
            " checkpoint with --resume auto. Slow boards need a larger --stall-timeout-seconds.",
        )
        logger.error("%s", self._timeout)
        self._closed.set()
        with contextlib.suppress(CommunicationError):  # raised where ranks are threads
            self._communicator.abort(self._timeout.exit_code)

    def _is_silent(self, heard_seconds_ago: float) -> bool:
        return heard_seconds_ago > 3 * self._interval

    def _describe(self, late: dict[int, bool]) -> str:
        """`late`: ranks that have not arrived, or are silent, and whether they are silent."""
        if not late:
            return "all ranks have arrived: the network between them is slow or cut"
        hosts = self._communicator.hosts
        return "not arrived: " + ", ".join(
            f"rank {rank} on {hosts[rank]}"
            f" ({'no sign of life' if silent else 'alive, but busy or hanging'})"
            for rank, silent in late.items()
        )


@dataclass(frozen=True)
class _Wait:
    """The collective a rank is in: its name, and when it began."""

    name: str
    since: float


class WatchedCommunicator:
    """A communicator whose every collective is under a watchdog's eyes."""

    def __init__(self, communicator: Communicator, watchdog: Watchdog) -> None:
        self._inner = communicator
        self._watchdog = watchdog
        self.rank = communicator.rank
        self.size = communicator.size
        self.host = communicator.host
        self.hosts = communicator.hosts
        self.medium = communicator.medium

    def choose(self, choice: Choice) -> None:
        self._inner.choose(choice)

    def channels(self, count: int) -> list[Communicator]:
        with self._watchdog.collective("creation of channels"):
            return [
                WatchedCommunicator(channel, self._watchdog)
                for channel in self._inner.channels(count)
            ]

    def allreduce(self, array: np.ndarray, algorithm: str | None = None) -> None:
        with self._watchdog.collective("all-reduce"):
            self._inner.allreduce(array, algorithm)

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        with self._watchdog.collective("broadcast"):
            self._inner.broadcast(array, root)

    def allgather_array(self, send: np.ndarray, receive: np.ndarray) -> None:
        with self._watchdog.collective("all-gather"):
            self._inner.allgather_array(send, receive)

    def gather_array(self, send: np.ndarray, receive: np.ndarray | None) -> None:
        with self._watchdog.collective("gather"):
            self._inner.gather_array(send, receive)

    def start_send(self, array: np.ndarray, destination: int) -> Transfer:
        return self._inner.start_send(array, destination)

    def start_receive(self, array: np.ndarray, source: int) -> Transfer:
        return self._inner.start_receive(array, source)

    def allgather(self, value: Any) -> list[Any]:
        with self._watchdog.collective("all-gather"):
            return self._inner.allgather(value)

    def barrier(self) -> None:
        with self._watchdog.collective("barrier"):
            self._inner.barrier()

    def post_progress(self, count: int) -> None:
        self._inner.post_progress(count)

    def read_progress(self) -> list[tuple[int, float]]:
        return self._inner.read_progress()

    def abort(self, exit_code: int) -> NoReturn:
        self._inner.abort(exit_code)

    def close(self) -> None:
        with self._watchdog.collective("close"):
            self._inner.close()


@contextlib.contextmanager
def watching(
    communicator: Communicator, *, warning_seconds: float, timeout_seconds: float
) -> Iterator[Communicator]:
    """The communicator under a watchdog's eyes, within the block. One rank waits for nobody."""
    if communicator.size == 1:
        yield communicator
        return
    watchdog = Watchdog(
        communicator, warning_seconds=warning_seconds, timeout_seconds=timeout_seconds
    )
    try:
        yield WatchedCommunicator(communicator, watchdog)
    finally:
        watchdog.close()
