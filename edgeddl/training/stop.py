"""A signal as a request: finish the step, write a checkpoint, end on all ranks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from edgeddl.errors import INTERRUPTED
from edgeddl.machine import launched_rank


def stop_signals() -> tuple[signal.Signals, ...]:
    """Which signals ask for a stop.

    Under mpirun, Ctrl-C and a closed terminal reach the ranks as SIGUSR1 (see scripts/prterun);
    SIGTERM means there that another rank has died, and that nothing is left to wait for.
    """
    if launched_rank() is None:
        return (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return (signal.SIGINT, signal.SIGUSR1)


def exit_code_after_stop() -> int:
    """The exit code of a rank that has stopped in good order.

    mpirun takes any other code than 0 for a failure and says so at length. It gives the code for
    an interruption itself.
    """
    return INTERRUPTED if launched_rank() is None else 0


class StopRequest:
    """Whether this process was asked to stop; the ranks tell each other with the next step."""

    def __init__(self) -> None:
        self.received = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals as requests within this block. Only for the main thread of a process."""
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
        if launched_rank() is None:  # else mpirun says it
            # Not through the log: its streams refuse to be entered again, should the signal have
            # come while something was being written.
            with contextlib.suppress(OSError):
                os.write(2, b"\nstopping in good order; once more to stop at once\n")
