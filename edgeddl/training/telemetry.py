"""A rank's report of its last step: a few numbers that travel with the loss.

So all ranks know the state of all others without additional messages.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NamedTuple

from edgeddl import hardware, machine
from edgeddl.log import start_thread
from edgeddl.training.clock import StepClock

# Temperatures change over minutes, and querying the firmware starts a process.
SAMPLE_EVERY_SECONDS = 5.0


class Vitals(NamedTuple):
    """A rank's memory and its host's sensors, sampled recently; NaN if there is no such sensor.

    throttling: the bits of the firmware, as in `hardware.Throttling`
    """

    memory_bytes: float = math.nan
    temperature_celsius: float = math.nan
    clock_hertz: float = math.nan
    throttling: float = math.nan


class RankStep(NamedTuple):
    """A rank's step: its wall time, the time of its phases, its images and its vitals."""

    seconds: float = 0.0
    data: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    allreduce_wait: float = 0.0
    update: float = 0.0
    images: float = 0.0
    memory_bytes: float = math.nan
    temperature_celsius: float = math.nan
    clock_hertz: float = math.nan
    throttling: float = math.nan

    @classmethod
    def of(cls, clock: StepClock, images: int, vitals: Vitals) -> RankStep:
        return cls(clock.elapsed(), **clock.phase_seconds, images=images, **vitals._asdict())

    @property
    def busy_seconds(self) -> float:
        """The time without waiting for other ranks."""
        return self.seconds - self.allreduce_wait


def read_vitals() -> Vitals:
    sensors = hardware.read_sensors()
    return Vitals(
        machine.resident_memory_bytes(),
        _known(sensors.temperature_celsius),
        _known(sensors.clock_hertz),
        _known(sensors.throttling.bits if sensors.throttling else None),
    )


def _known(value: float | None) -> float:
    return math.nan if value is None else value


class VitalsSampler:
    """Samples memory and sensors in a thread, so that steps do not wait for them."""

    def __init__(self, read: Callable[[], Vitals] = read_vitals) -> None:
        self._latest = read()
        self._read = read
        self._closed = threading.Event()
        start_thread(self._sample, "edgeddl-vitals")

    def __call__(self) -> Vitals:
        return self._latest

    def close(self) -> None:
        self._closed.set()

    def _sample(self) -> None:
        while not self._closed.wait(SAMPLE_EVERY_SECONDS):
            self._latest = self._read()
