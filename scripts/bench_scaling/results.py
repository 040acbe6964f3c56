"""The measurements, saved to a file after each run."""

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
    """A successful run. `wall_seconds` includes start-up, steps and shut-down."""

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
    """A failed run and the end of its output."""

    run: Run
    output: str


class UnreadableResults(Exception):
    """The results file is damaged or has another format; the message gives the reason."""


class ConditionsDiffer(Exception):
    """Earlier measurements were made under different conditions; the message lists them."""


class Results:
    """All measurements under the same conditions, in memory and in a file."""

    def __init__(self, path: Path, conditions: dict[str, Any]) -> None:
        self.path = path
        self._conditions = conditions
        self._measurements: dict[Run, Measurement] = {}
        self.failures: list[Failure] = []
        self.allreduces: list[Timing] = []

    def load(self) -> None:
        """Load the measurements of an earlier benchmark, without its failures."""
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
        """Write all results, with additional entries `more`."""
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
    """Compare conditions that both have: PyTorch may be present in only one of them."""
    differing = [
        f"{name}: {earlier[name]} then, {now[name]} now"
        for name in sorted(earlier.keys() & now.keys())
        if earlier[name] != now[name]
    ]
    if differing:
        raise ConditionsDiffer("\n  ".join(differing))
