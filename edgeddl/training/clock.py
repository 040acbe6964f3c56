"""Measures the time of steps, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from edgeddl.run_format import PHASES, WARM_UP_STEPS


class StepClock:
    """Seconds of one step by phase; nested time counts only for the inner phase."""

    def __init__(self) -> None:
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)
        self._started = time.perf_counter()
        self._inner_seconds = 0.0  # of phases nested in the current one

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        outer, self._inner_seconds = self._inner_seconds, 0.0
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            self.phase_seconds[name] += seconds - self._inner_seconds
            self._inner_seconds = outer + seconds

    def elapsed(self) -> float:
        return time.perf_counter() - self._started


class Stopwatch:
    """Measures throughput over all steps except the warm-up steps.

    Evaluation and checkpoints happen between steps, so they do not count either.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0
        self.images = 0
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)
        self._warm_up_left = WARM_UP_STEPS

    def add(self, seconds: float, phase_seconds: dict[str, float], images: int) -> None:
        """Add a step of this rank; `images` are its own."""
        if self.steps and self._warm_up_left:
            self._warm_up_left -= 1
            self._reset()
        self.steps += 1
        self.seconds += seconds
        self.images += images
        for name in PHASES:
            self.phase_seconds[name] += phase_seconds[name]

    def _reset(self) -> None:
        """Discard a warm-up step only when the next one comes: short runs have figures, too."""
        self.steps, self.seconds, self.images = 0, 0.0, 0
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)

    @property
    def images_per_second(self) -> float:
        """This rank's images over the wall time of its steps."""
        return self.images / self.seconds if self.seconds else 0.0

    @property
    def images_per_second_alone(self) -> float:
        """The throughput of this rank without waiting for communication."""
        busy = self.seconds - self.phase_seconds["allreduce_wait"]
        return self.images / busy if busy > 0 else 0.0
