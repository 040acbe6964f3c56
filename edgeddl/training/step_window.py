"""The step window: means over the last steps of all ranks, for dashboards and the live page."""

from __future__ import annotations

from collections import deque

import numpy as np

from edgeddl.run_format import PHASES
from edgeddl.training.telemetry import RankStep

# Large enough to be readable, small enough to show a change.
WINDOW_STEPS = 20
_SUMMED = ("seconds", *PHASES, "images")


class StepWindow:
    """The last steps of all ranks, from the reports that travel with the loss."""

    def __init__(self) -> None:
        self.latest: tuple[RankStep, ...] = ()
        self._steps: deque[np.ndarray] = deque(maxlen=WINDOW_STEPS)
        self._sums = np.zeros((0, len(_SUMMED)))  # by rank

    def add(self, ranks: tuple[RankStep, ...]) -> None:
        """Add the reports of one step; those before the first step are empty and ignored."""
        if not all(rank.seconds for rank in ranks):
            return
        self.latest = ranks
        self._steps.append(np.array([rank[: len(_SUMMED)] for rank in ranks]))
        self._sums = np.sum(self._steps, axis=0)

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def images_per_second(self) -> float:
        """The images of all ranks over the time of the steps."""
        return float(self._of("images").sum() / self._of("seconds").max())

    @property
    def efficiency(self) -> float | None:
        """Throughput over the sum of the ranks' throughputs without waiting."""
        alone = sum(self.images_per_second_alone)
        return self.images_per_second / alone if alone else None

    @property
    def images_per_second_alone(self) -> list[float]:
        """By rank, the throughput without waiting for others."""
        busy = np.maximum(self._busy, 1e-9)
        return (self._of("images") / busy).tolist()

    @property
    def images_per_second_by_rank(self) -> list[float]:
        return (self._of("images") / self._of("seconds")).tolist()

    @property
    def busy_seconds(self) -> list[float]:
        """By rank, the time of a step without waiting."""
        return (self._busy / len(self)).tolist()

    @property
    def phase_shares(self) -> list[dict[str, float]]:
        """By rank, each phase's part of the step time; the rest is Python between the phases."""
        shares = self._sums[:, 1:-1] / self._of("seconds")[:, None]
        return [dict(zip(PHASES, rank, strict=True)) for rank in shares.tolist()]

    @property
    def slowest_rank(self) -> int:
        """The straggler: the rank that waits least.

        Not the rank with the longest busy time: work between two steps, such as rank 0 writing
        files, is not part of a step, but the other ranks wait for it.
        """
        return int((self._of("allreduce_wait") / self._of("seconds")).argmin())

    @property
    def _busy(self) -> np.ndarray:
        return self._of("seconds") - self._of("allreduce_wait")

    def _of(self, name: str) -> np.ndarray:
        return self._sums[:, _SUMMED.index(name)]
