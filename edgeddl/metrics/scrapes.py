"""Knows when somebody has asked for metrics, and lets them ask once more before the end."""

from __future__ import annotations

import threading
import time

# Two of the intervals at which Prometheus comes (cluster/monitoring/prometheus.yml).
PATIENCE_SECONDS = 10.0


class Scrapes:
    """Any thread may count; one waits."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._last: float | None = None
        self._came = threading.Event()

    def count(self) -> None:
        self._last = time.monotonic()
        self._came.set()

    def await_last(self) -> None:
        """Wait for one more; not at all if nobody has come lately."""
        if self._last is not None and time.monotonic() - self._last < self._patience:
            self._came.clear()
            self._came.wait(self._patience)
