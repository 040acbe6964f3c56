"""What more nodes would do: the links' alpha-beta model, and what backward can hide. Pure.

    step(N) = compute + max(waiting as measured, allreduce(N) - 2/3 compute)

Backward is two thirds of computing, and communication goes on beside it; the all-reduce of N nodes
follows from those measured on 2 to 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from bench_scaling.plan import EDGEDDL, Case
from bench_scaling.rows import Predict, Row
from edgeddl.comm.model import LinkModel, Timing
from edgeddl.table import render_table

BACKWARD_SHARE = 2 / 3


def make_predictors(rows: Sequence[Row], link: LinkModel, link_mbit: float) -> dict[Case, Predict]:
    """For each series of edgeddl, from its row with the most nodes."""
    last = {row.case.series: row for row in rows if row.case.system == EDGEDDL}
    return {
        series: partial(predict_step, row, link, link_mbit)
        for series, row in last.items()
        if row.case.nodes > 1
    }


def predict_step(row: Row, link: LinkModel, link_mbit: float, nodes: int) -> float:
    """Seconds of a step of the row's series on so many nodes."""
    if nodes == 1:
        return row.compute_seconds
    known = row.case.nodes
    sent_bytes = (row.wire_seconds or 0.0) * link_mbit * 1e6 / 8
    payload = sent_bytes * known / (2 * (known - 1))
    allreduce = link.allreduce_seconds(int(payload), nodes)
    exposed = allreduce - BACKWARD_SHARE * row.compute_seconds
    return row.compute_seconds + max(row.wait_seconds, exposed)


def render_validation(rows: Sequence[Row], predictors: Mapping[Case, Predict]) -> str:
    """The model beside what was measured."""
    cells = []
    for row in rows:
        predict = predictors.get(row.case.series)
        if predict is None or row.case.nodes == 1:
            continue
        predicted = predict(row.case.nodes)
        cells.append(
            [
                row.case.stem,
                str(row.case.batch),
                str(row.case.nodes),
                row.case.label,
                f"{row.step_seconds:.2f} s",
                f"{predicted:.2f} s",
                f"{predicted / row.step_seconds - 1:+.0%}",
            ]
        )
    headings = ("stem", "batch", "nodes", "system", "measured", "model", "difference")
    return render_table(headings, cells)


def render_link(link: LinkModel, timings: Sequence[Timing]) -> str:
    """The all-reduces the model was made from."""
    cells = []
    for one in timings:
        model = link.allreduce_seconds(one.payload_bytes, one.ranks)
        cells.append(
            [
                str(one.ranks),
                f"{one.payload_bytes / 1e6:.1f} MB",
                f"{one.seconds * 1e3:.0f} ms",
                f"{model * 1e3:.0f} ms",
                f"{model / one.seconds - 1:+.0%}",
            ]
        )
    title = (
        f"All-reduces: a turn takes {link.turn_seconds * 1e3:.2f} ms, a link carries"
        f" {link.bytes_per_second / 1e6:.1f} MB/s"
    )
    table = render_table(("nodes", "size", "measured", "model", "difference"), cells)
    return f"{title}\n\n{table}"
