"""Reads sensors and updates a progress display during a measurement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from edgeddl.hardware import Sensors, read_sensors
from edgeddl.log import start_thread

INTERVAL_SECONDS = 1.0


class SensorMonitor:
    """Reads the sensors and calls `tick` every second, within a `with` block."""

    def __init__(
        self, tick: Callable[[], None], read: Callable[[], Sensors] = read_sensors
    ) -> None:
        self._tick = tick
        self._read = read
        self._end = threading.Event()
        self._samples: list[Sensors] = []

    def __enter__(self) -> SensorMonitor:
        self._samples.append(self._read())
        self._thread = start_thread(self._sample, "linpack monitor")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        self._samples.append(self._read())

    def _sample(self) -> None:
        while not self._end.wait(INTERVAL_SECONDS):
            self._samples.append(self._read())
            self._tick()

    @property
    def hottest_celsius(self) -> float | None:
        known = (sample.temperature_celsius for sample in self._samples)
        return max((value for value in known if value is not None), default=None)

    @property
    def throttled(self) -> bool | None:
        """Whether the machine was throttled within the block; None if unknown."""
        known = [sample.throttling for sample in self._samples if sample.throttling]
        if not known:
            return None
        # The bits since boot reveal throttling between two samples.
        came = known[-1].slowed_since_boot and known[-1].bits >> 16 != known[0].bits >> 16
        return came or any(one.slowed for one in known)
