"""Evaluates the measurements of each case: throughput, efficiency, distance to the limit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from bench_scaling.plan import Case
from bench_scaling.results import Measurement

# predicts the step time in seconds on a number of nodes
Predict = Callable[[int], float]

# link rate of the first N nodes in Mbit/s; None without links
LinkRate = Callable[[int], float | None]

PREDICTED_NODES = (8, 16, 32, 64)


@dataclass(frozen=True)
class Row:
    """Medians over the runs of a case.

    efficiency: throughput relative to N times a single node; None if that was not measured
    communication_efficiency: throughput relative to N nodes that train independently at the same
        time
    wire_seconds: transfer time of a step at the link's rate; None without a link
    limit_seconds: lower bound of the step time: compute time of a single node or transfer time,
        whichever is larger
    """

    case: Case
    runs: int
    step_seconds: float
    wait_seconds: float
    efficiency: float | None
    communication_efficiency: float | None
    wire_seconds: float | None
    limit_seconds: float | None

    @property
    def images_per_second(self) -> float:
        return self.case.batch * self.case.nodes / self.step_seconds

    @property
    def compute_seconds(self) -> float:
        return self.step_seconds - self.wait_seconds

    @property
    def share_of_limit(self) -> float | None:
        return self.limit_seconds / self.step_seconds if self.limit_seconds else None

    def to_json(self) -> dict[str, Any]:
        names = ("images_per_second", "compute_seconds", "share_of_limit")
        return asdict(self) | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Prediction:
    """The predicted result of a case on more nodes."""

    case: Case
    step_seconds: float
    efficiency: float | None

    @property
    def images_per_second(self) -> float:
        return self.case.batch * self.case.nodes / self.step_seconds


def make_rows(measurements: Iterable[Measurement], link_mbit: LinkRate) -> list[Row]:
    """Make a row for each case, in the order of tables."""
    by_case: dict[Case, list[Measurement]] = {}
    for one in measurements:
        by_case.setdefault(one.run.case, []).append(one)
    step_seconds = {
        case: median(one.figures.step_seconds for one in of_case)
        for case, of_case in by_case.items()
    }
    return [
        make_row(case, by_case[case], step_seconds, link_mbit(case.nodes))
        for case in sorted(by_case, key=lambda case: case.order)
    ]


def make_row(
    case: Case,
    measurements: Sequence[Measurement],
    all_step_seconds: Mapping[Case, float],
    link_mbit: float | None,
) -> Row:
    """Make the row of a case, with its efficiency relative to other cases."""
    alone_seconds, beside_seconds = (
        all_step_seconds.get(other) for other in (case.alone, case.beside)
    )
    figures = [one.figures for one in measurements]
    step_seconds = median(one.step_seconds for one in figures)
    sent_bytes = median(one.sent_bytes for one in figures)
    wire_seconds = sent_bytes * 8 / (link_mbit * 1e6) if link_mbit else None
    return Row(
        case=case,
        runs=len(measurements),
        step_seconds=step_seconds,
        wait_seconds=median(one.wait_seconds for one in figures),
        efficiency=alone_seconds / step_seconds if alone_seconds else None,
        communication_efficiency=beside_seconds / step_seconds if beside_seconds else None,
        wire_seconds=wire_seconds,
        limit_seconds=_largest(alone_seconds, wire_seconds),
    )


def _largest(*values: float | None) -> float | None:
    """Return the largest value; None if one is unknown."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def predict_row(row: Row, predict: Predict, nodes: int) -> Prediction:
    """Predict the row's case on another number of nodes."""
    seconds = predict(nodes)
    return Prediction(
        case=replace(row.case, nodes=nodes),
        step_seconds=seconds,
        efficiency=row.efficiency * row.step_seconds / seconds if row.efficiency else None,
    )
