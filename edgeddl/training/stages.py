"""Reports which stage of start-up takes long.

Start-up reads files, imports the user's model, connects ranks and measures. A network drive, a
download in the user's model or a busy host can block any of it. The watchdog reports ranks that
wait for others (comm/watchdog.py); this module reports what a rank itself is doing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from edgeddl.log import logger, start_thread

REPORT_SECONDS = 10.0


@contextmanager
def stage(name: str) -> Iterator[None]:
    """The block is this stage of start-up; report it if it takes longer than REPORT_SECONDS."""
    ended = threading.Event()

    def report() -> None:
        if not ended.wait(REPORT_SECONDS):
            logger.warning("start-up: %s takes longer than %g s", name, REPORT_SECONDS)

    start_thread(report, "edgeddl-stage")
    try:
        yield
    finally:
        ended.set()
