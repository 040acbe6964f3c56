"""Tables of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench_scaling.plan import Case
from bench_scaling.prediction import render_validation
from bench_scaling.results import Failure
from bench_scaling.rows import PREDICTED_NODES, Predict, Prediction, Row, predict_row
from edgeddl.table import counted, render_table

ABSENT = "-"
COMMON_HEADINGS = ("stem", "batch", "nodes", "system", "img/s", "efficiency", "step")
HEADINGS = (*COMMON_HEADINGS, "of apart", "compute", "waiting", "wire", "of link limit", "runs")


def render_report(rows: Sequence[Row], predictors: Mapping[Case, Predict] | None = None) -> str:
    """Render the measurements, and predictions for each series that has a predictor."""
    tables = [f"Training ResNet-18\n\n{render_table(HEADINGS, [_cells(row) for row in rows])}"]
    if predictors:
        validation = render_validation(rows, predictors)
        tables.append(f"Model and measurement\n\n{validation}")
        cells = [_common_cells(one) for one in make_predictions(rows, predictors)]
        tables.append(f"Predicted, not measured\n\n{render_table(COMMON_HEADINGS, cells)}")
    return "\n\n".join(tables)


def make_predictions(rows: Sequence[Row], predictors: Mapping[Case, Predict]) -> list[Prediction]:
    last = {row.case.series: row for row in rows}  # the one with the most nodes
    return [
        predict_row(last[series], predict, nodes)
        for series, predict in predictors.items()
        for nodes in PREDICTED_NODES
    ]


def render_failures(failures: Sequence[Failure]) -> str:
    """List failed runs with the end of their output."""
    texts = [f"{failure.run.case}\n{_indented(failure.output)}" for failure in failures]
    return "\n".join([f"failed: {counted(len(failures), 'run')}", *texts])


def _cells(row: Row) -> list[str]:
    return [
        *_common_cells(row),
        ABSENT if row.case.apart else _percent(row.communication_efficiency),
        _seconds(row.compute_seconds),
        _seconds(row.wait_seconds),
        _seconds(row.wire_seconds),
        _percent(row.share_of_limit),
        str(row.runs),
    ]


def _common_cells(row: Row | Prediction) -> list[str]:
    case = row.case
    return [
        case.stem,
        str(case.batch),
        str(case.nodes),
        case.label,
        f"{row.images_per_second:.1f}",
        _percent(row.efficiency),
        _seconds(row.step_seconds),
    ]


def _seconds(seconds: float | None) -> str:
    return ABSENT if seconds is None else f"{seconds:.2f} s"


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.0%}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
