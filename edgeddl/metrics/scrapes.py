"""Delays the end of a run until Prometheus has scraped the final values."""

from __future__ import annotations

import threading
import time

# Two scrape intervals of Prometheus (cluster/monitoring/prometheus.yml).
TIMEOUT_SECONDS = 10.0


class Scrapes:
    """Counts scrapes. Any thread may call `count`; only one may wait."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout = timeout_seconds
        self._last: float | None = None
        self._scraped = threading.Event()

    def count(self) -> None:
        self._last = time.monotonic()
        self._scraped.set()

    def await_last(self) -> None:
        """Wait for one more scrape, unless there was none recently."""
        if self._last is not None and time.monotonic() - self._last < self._timeout:
            self._scraped.clear()
            self._scraped.wait(self._timeout)
