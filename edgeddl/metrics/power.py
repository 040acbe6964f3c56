"""Power and energy of a node, measured if possible, otherwise estimated."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgeddl.hardware import Sensors

# Power of a Raspberry Pi 4 in watts: 1.6 to 2.7 idle, 5 with all cores busy, 7.2 in LINPACK.
# /proc/stat does not show the kind of work, so the estimate is a mean, with an error of up to 0.6 W
# when idle and 1.1 W when busy.
IDLE_WATTS = 2.15
BUSY_WATTS = 6.1
# Readings of a meter that are older than this are ignored.
STALE_SECONDS = 60.0
# The last line is within this many bytes. Reading the whole file every two seconds would be slow
# after months.
LAST_BYTES = 4096


@dataclass(frozen=True)
class Power:
    """Mean power since the previous reading, the energy in that time, and the source."""

    source: str
    watts: float
    joules: float


def estimate_watts(sensors: Sensors, utilization: float | None) -> float | None:
    """Estimate from the utilisation and the clock of the cores."""
    if utilization is None:
        return None
    now, most = sensors.clock_hertz, sensors.clock_max_hertz
    clock_ratio = min(now / most, 1.0) if now and most else 1.0
    return IDLE_WATTS + utilization * clock_ratio * (BUSY_WATTS - IDLE_WATTS)


def read_meter_file(path: Path, now: Callable[[], float] = time.time) -> float | None:
    """The first number in the last line of a file written by the program of a USB meter."""
    try:
        if now() - path.stat().st_mtime > STALE_SECONDS:
            return None
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - LAST_BYTES, 0))
            lines = file.read(LAST_BYTES).decode(errors="replace").split("\n")
    except OSError:
        return None
    last = next((line for line in reversed(lines) if line.strip()), "")
    found = re.match(r"\s*(\d+(\.\d+)?)(?![\w.:-])", last.replace(" W", ""))
    return float(found[1]) if found else None


class PowerMeter:
    """Reads the best available source and integrates the energy between readings.

    Sources in order of preference: file of a meter, chip in the supply line, energy counter of the
    processor, model.
    """

    def __init__(
        self, *, file: Path | None, model: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._model = model
        self._clock = clock
        self._last_time: float | None = None
        self._last_joules: float | None = None

    def read(self, sensors: Sensors, utilization: float | None) -> Power | None:
        now, joules = self._clock(), sensors.package_joules
        seconds = 0.0 if self._last_time is None else now - self._last_time
        counted = self._counted_watts(joules, seconds)
        self._last_time, self._last_joules = now, joules
        for source, watts in (
            ("file", read_meter_file(self._file) if self._file else None),
            ("ina219", sensors.power_watts),
            ("rapl", counted),
            ("model", estimate_watts(sensors, utilization) if self._model else None),
        ):
            if watts is not None:
                return Power(source, watts, watts * seconds)
        return None

    def _counted_watts(self, joules: float | None, seconds: float) -> float | None:
        """Power from two readings of a counter; None if the counter wrapped in between."""
        if joules is None or self._last_joules is None or seconds <= 0:
            return None
        return (joules - self._last_joules) / seconds if joules >= self._last_joules else None
