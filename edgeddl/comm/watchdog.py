"""Names the ranks that have not joined a collective operation, and ends the job after a timeout.

MPI waits forever for a rank that hangs, was stopped, or has lost its network. On every rank the
watchdog, a thread, regularly sends the number of collective operations that this rank has begun. A
rank that waits too long can therefore name the ranks that are behind, and report whether they still
send heartbeats: first in a warning, then by ending the job.
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

# Until ranks create their channels, just before the first step. Start-up has no long collectives,
# and its user may still be watching.
STARTUP_WARNING_SECONDS = 10.0


class Watchdog:
    """Watches one rank's collectives from its own thread."""

    def __init__(
        self, communicator: Communicator, *, warning_seconds: float, timeout_seconds: float
    ) -> None:
        self._communicator = communicator
        self._warning_seconds = min(warning_seconds, STARTUP_WARNING_SECONDS)
        self._step_warning_seconds = warning_seconds
        self._timeout_seconds = timeout_seconds
        self._interval = self._warning_seconds / 4  # between heartbeats
        self._begun = 0
        self._waits: dict[int, _Wait] = {}  # by thread: each channel has its own
        self._lock = threading.Lock()
        self._warned = False
        self._timeout: CollectiveTimeout | None = None
        self._closed = threading.Event()
        self._thread = start_thread(self._watch, "edgeddl-watchdog")

    @contextlib.contextmanager
    def collective(self, name: str) -> Iterator[None]:
        """The block runs a collective operation."""
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

    def end_startup(self) -> None:
        """From now on, warn after the time that applies to training steps."""
        self._warning_seconds = self._step_warning_seconds

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
        """Warn about ranks that have begun fewer collectives than this rank, or end the job.

        Every rank has begun the collectives that this rank has completed, so a rank that is behind
        has not joined one that this rank waits in. Channels count them in a different order on
        each rank, but every rank begins the same ones.
        """
        waited = time.monotonic() - wait.since
        late = {
            rank: self._is_silent(heard)
            for rank, (count, heard) in enumerate(progress)
            if count < begun or self._is_silent(heard)
        }
        # One of the waiting ranks reports for all; the others act only if it cannot.
        reports = self._communicator.rank == min(set(range(len(progress))) - late.keys(), default=0)
        if waited > self._timeout_seconds + (0 if reports else 2 * self._interval):
            self._end_job(wait.name, waited, late)
        elif waited > self._warning_seconds and reports and not self._warned:
            self._warned = True
            logger.warning("waited %.0f s in %s; %s", waited, wait.name, self._describe(late))

    def _end_job(self, name: str, waited: float, late: dict[int, bool]) -> None:
        self._timeout = CollectiveTimeout(
            f"gave up after {waited:.0f} s in {name}; {self._describe(late)}",
            ranks=tuple(late),
            hint="check these hosts (power, network, memory), then continue from the last"
            " checkpoint with --resume auto. Slow boards need a larger --stall-timeout-seconds.",
        )
        logger.error("%s", self._timeout)
        self._closed.set()
        with contextlib.suppress(CommunicationError):  # raised where ranks are threads
            self._communicator.abort(self._timeout.exit_code)

    def _is_silent(self, heard_seconds_ago: float) -> bool:
        return heard_seconds_ago > 3 * self._interval

    def _describe(self, late: dict[int, bool]) -> str:
        """`late`: ranks that have not joined or send no heartbeats, and whether they send none."""
        if not late:
            return "all ranks have joined: the network between them is slow or cut"
        hosts = self._communicator.hosts
        return "not joined: " + ", ".join(
            f"rank {rank} on {hosts[rank]}"
            f" ({'no heartbeat' if silent else 'responding, but not making progress'})"
            for rank, silent in late.items()
        )


@dataclass(frozen=True)
class _Wait:
    """The collective that a thread waits in: its name and start time."""

    name: str
    since: float


class WatchedCommunicator:
    """A communicator whose collectives a watchdog observes."""

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
        self._watchdog.end_startup()
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
    """Within the block, a watchdog observes the communicator, unless there is only one rank."""
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
