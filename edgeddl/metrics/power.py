"""A node's power and energy: measured where something measures it, else estimated."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgeddl.hardware import Sensors

# A Raspberry Pi 4 (watts): idle 1.6-2.7, all cores at work 5, in LINPACK 7.2. How a core is at work
# /proc/stat does not say, so the estimate lies between: off by up to 0.6 W idle, 1.1 W at work.
IDLE_WATTS = 2.15
BUSY_WATTS = 6.1
# A meter's file that has not been written for so long says nothing of now.
STALE_SECONDS = 60.0
# Its last line is within so many bytes; all of it would be read every two seconds, for months.
LAST_BYTES = 4096


@dataclass(frozen=True)
class Power:
    """Watts over the time since the reading before, the energy in it, and how it is known."""

    source: str
    watts: float
    joules: float


def estimate_watts(sensors: Sensors, utilization: float | None) -> float | None:
    """By how busy the cores were, and at what part of their clock."""
    if utilization is None:
        return None
    now, most = sensors.clock_hertz, sensors.clock_max_hertz
    pace = min(now / most, 1.0) if now and most else 1.0
    return IDLE_WATTS + utilization * pace * (BUSY_WATTS - IDLE_WATTS)


def read_meter_file(path: Path, now: Callable[[], float] = time.time) -> float | None:
    """Watts: the first number of the last line of a file that a USB meter's program writes."""
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
    """Asks the best source there is, at each reading, and counts the energy since the one before.

    First a meter's file, then a chip in the supply line, the processor's own counter, the model.
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
        """From two readings of a counter; None where it has begun anew in between."""
        if joules is None or self._last_joules is None or seconds <= 0:
            return None
        return (joules - self._last_joules) / seconds if joules >= self._last_joules else None
