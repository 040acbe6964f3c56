"""What has been measured: kept in a file that is complete after each run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_scaling.plan import Case, Run, Steps
from bench_scaling.systems import Figures
from edgeddl.atomic_file import write_json
from edgeddl.comm.model import Timing


@dataclass(frozen=True)
class Measurement:
    """A run that went well. `wall_seconds` is all of it: start-up, steps and the end."""

    run: Run
    steps: Steps
    figures: Figures
    wall_seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Measurement:
        run = Run(Case(**value["run"]["case"]), value["run"]["repeat"])
        figures, steps = Figures(**value["figures"]), Steps(**value["steps"])
        return cls(run, steps, figures, value["wall_seconds"])


@dataclass(frozen=True)
class Failure:
    """A run that did not go well, and the last lines it said."""

    run: Run
    last_words: str


class UnreadableResults(Exception):
    """What is there is not what a benchmark has written; the message says why."""


class ConditionsDiffer(Exception):
    """Earlier measurements were made under other conditions; the message names them."""


class Results:
    """All measurements under the same conditions, in memory and in a file."""

    def __init__(self, path: Path, conditions: dict[str, Any]) -> None:
        self.path = path
        self._conditions = conditions
        self._measurements: dict[Run, Measurement] = {}
        self.failures: list[Failure] = []
        self.allreduces: list[Timing] = []

    def load(self) -> None:
        """Take over what an earlier benchmark has measured, not its failures."""
        try:
            earlier = json.loads(self.path.read_text())
            conditions = dict(earlier["conditions"])
            measurements = [Measurement.from_json(value) for value in earlier["measurements"]]
            allreduces = [Timing(**value) for value in earlier.get("allreduces", [])]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableResults(f"{type(error).__name__}: {error}") from None
        _check_same(conditions, self._conditions)
        self._conditions = conditions | self._conditions
        self._measurements = {one.run: one for one in measurements}
        self.allreduces = allreduces

    def add(self, measurement: Measurement) -> None:
        self._measurements[measurement.run] = measurement
        self.write()

    def add_failure(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.write()

    def write(self, **more: Any) -> None:
        """Everything, and what else a reader of the file shall find."""
        value = {
            "conditions": self._conditions,
            "measurements": [one.to_json() for one in self],
            "failures": [asdict(one) for one in self.failures],
            "allreduces": [asdict(one) for one in self.allreduces],
        }
        write_json(self.path, value | more)

    def has_failed(self, case: Case) -> bool:
        return any(failure.run.case == case for failure in self.failures)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self._measurements.values())

    def __contains__(self, run: Run) -> bool:
        return run in self._measurements

    def __len__(self) -> int:
        return len(self._measurements)


def _check_same(earlier: dict[str, Any], now: dict[str, Any]) -> None:
    """What only one of them knows is no difference: PyTorch may join, or not take part again."""
    differing = [
        f"{name}: {earlier[name]} then, {now[name]} now"
        for name in sorted(earlier.keys() & now.keys())
        if earlier[name] != now[name]
    ]
    if differing:
        raise ConditionsDiffer("\n  ".join(differing))
