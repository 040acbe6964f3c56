"""Tells scripts/prterun, which started this job, that the rank is alive and in which phase it is.

The watchdog (comm/watchdog.py) needs MPI, so it cannot see a rank that stops before MPI_Init or in
MPI_Finalize. A heartbeat is a line on stderr, which Open MPI carries from every host to
scripts/prterun. That script removes the line and ends a job that waits too long.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress

from edgeddl.machine import launched_rank, launched_size

# Set by scripts/prterun. Open MPI passes on variables of this prefix to ranks on other hosts.
VARIABLE = "OMPI_EDGEDDL_HEARTBEAT"
INTERVAL_SECONDS = 2.0

STARTING, RUNNING, COMPLETE, FAILED, ENDED = "starting", "running", "complete", "failed", "ended"


class Heartbeat:
    """Beats from a thread, from the first `enter` on, if scripts/prterun started this rank."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._phase = ""
        self._wanted = VARIABLE in os.environ and launched_rank() is not None

    def enter(self, phase: str) -> None:
        """From here on the rank is in this phase."""
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

    def _beat(self) -> None:
        words = (launched_rank(), launched_size(), socket.gethostname(), self._phase)
        line = f"\x1eedgeddl {' '.join(map(str, words))} {self._timeout_seconds:g}\n"
        with suppress(OSError):  # nobody reads any more
            os.write(2, line.encode())
