"""Signals that request a stop: finish the step, write a checkpoint, end on all ranks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from edgeddl.errors import INTERRUPTED
from edgeddl.machine import launched_rank


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that request a stop.

    Under mpirun, Ctrl-C and a closed terminal reach the ranks as SIGUSR1 (see scripts/prterun);
    there, SIGTERM means that another rank has died, so this rank ends immediately.
    """
    if launched_rank() is None:
        return (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return (signal.SIGINT, signal.SIGUSR1)


def exit_code_after_stop() -> int:
    """The exit code of a rank that has stopped on request.

    mpirun reports any code but 0 as a failure, and returns the code for an interruption itself.
    """
    return INTERRUPTED if launched_rank() is None else 0


class StopRequest:
    """Whether this process was asked to stop; ranks share it in the next step."""

    def __init__(self) -> None:
        self.received = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Treat signals as requests within this block; only for the main thread of a process."""
        previous = {number: signal.signal(number, self._receive) for number in stop_signals()}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True
        if launched_rank() is None:  # otherwise mpirun reports it
            # Not through the log: its streams are not reentrant, and the signal may have
            # interrupted a write.
            with contextlib.suppress(OSError):
                os.write(2, b"\nstopping in good order; once more to stop at once\n")
