"""Sends heartbeats with the phase of a rank to scripts/prterun, which started the job.

The watchdog (comm/watchdog.py) needs MPI, so it cannot detect a rank that hangs before MPI_Init or
in MPI_Finalize. A heartbeat is a line on stderr, which Open MPI forwards from every host to
scripts/prterun. The script removes the line and ends a job that stalls.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress

from edgeddl.machine import launched_rank, launched_size

# Set by scripts/prterun. Open MPI passes variables with this prefix to ranks on other hosts.
VARIABLE = "OMPI_EDGEDDL_HEARTBEAT"
INTERVAL_SECONDS = 2.0

STARTING, RUNNING, COMPLETE, FAILED, ENDED = "starting", "running", "complete", "failed", "ended"
DIED = "died"  # sent by the rank's sentinel (edgeddl/oom_sentinel.py)


class Heartbeat:
    """Sends heartbeats from a thread after the first `enter`, if scripts/prterun runs this job."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._phase = ""
        self._wanted = VARIABLE in os.environ and launched_rank() is not None

    def enter(self, phase: str) -> None:
        """Set the phase of the rank."""
        is_first, self._phase = not self._phase, phase
        if not self._wanted:
            return
        self._beat()
        if is_first:
            threading.Thread(
                target=self._keep_beating, name="edgeddl-heartbeat", daemon=True
            ).start()

    def _keep_beating(self) -> None:
        while True:
            time.sleep(INTERVAL_SECONDS)
            self._beat()

    def line(self, phase: str) -> str:
        """A heartbeat; empty if nothing reads it."""
        if not self._wanted:
            return ""
        words = (launched_rank(), launched_size(), socket.gethostname(), phase)
        return f"\x1eedgeddl {' '.join(map(str, words))} {self._timeout_seconds:g}\n"

    def _beat(self) -> None:
        with suppress(OSError):  # stderr is closed
            os.write(2, self.line(self._phase).encode())
