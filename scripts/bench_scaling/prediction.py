"""Predicts step times on more nodes, from the links' alpha-beta model and the overlap. Pure.

    step(N)    = compute(N) + others + max(0, allreduce(N) - hidden(N))
    hidden(N)  = 2/3 compute(N) + min(1/3 compute(N), late share of allreduce(N))
    compute(N) = compute of independent nodes + CPU time for sending, proportional to the bytes
    allreduce(N) = sum of the step's all-reduces

Backward is two thirds of the compute time and overlaps with communication. Late gradients, a fifth
of ResNet-18's, also overlap with forward. The all-reduce time of N nodes is extrapolated from those
measured on 2 to 4. `others` is the remaining time that ranks waited for each other. It and the cost
of sending come from the series' row with the most nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bench_scaling.plan import EDGEDDL, EVEN, Case
from bench_scaling.rows import Predict, Row
from edgeddl.comm.model import LinkModel, Timing
from edgeddl.table import render_table

BACKWARD_SHARE = 2 / 3
LATE_SHARE = 0.21  # one of the two weights of 512 x 512 x 3 x 3 in ResNet-18's last block


def make_predictors(
    rows: Sequence[Row], link: LinkModel, step_payloads: Callable[[Case], Sequence[int]]
) -> dict[Case, Predict]:
    """Return a predictor for each series of edgeddl, based on its row with the most nodes.

    step_payloads: returns the bytes of each all-reduce of a step
    Series with uneven shares are excluded: the speeds of further nodes are unknown.
    """
    last = {
        row.case.series: row
        for row in rows
        if row.case.system == EDGEDDL and not row.case.apart and row.case.balance == EVEN
    }
    return {
        series: partial(predict_step, row, link, step_payloads(series))
        for series, row in last.items()
        if row.case.nodes > 1
    }


def predict_step(row: Row, link: LinkModel, payloads: Sequence[int], nodes: int) -> float:
    """Predict the step time of the row's series on this number of nodes."""
    known = row.case.nodes

    def exposed(compute: float, nodes: int) -> float:
        allreduce = sum(link.allreduce_seconds(payload, nodes) for payload in payloads)
        beside_forward = min((1 - BACKWARD_SHARE) * compute, LATE_SHARE * allreduce)
        return max(0.0, allreduce - BACKWARD_SHARE * compute - beside_forward)

    efficiency = row.communication_efficiency or row.efficiency
    apart = min(efficiency * row.step_seconds if efficiency else math.inf, row.compute_seconds)
    sending = (row.compute_seconds - apart) * _sent_share(nodes) / _sent_share(known)
    others = max(row.wait_seconds - exposed(row.compute_seconds, known), 0.0)
    compute = apart + sending
    return compute + others + exposed(compute, nodes)


def _sent_share(nodes: int) -> float:
    """Return the bytes a rank sends in an all-reduce, relative to its gradients."""
    return 2 * (nodes - 1) / nodes


def render_validation(rows: Sequence[Row], predictors: Mapping[Case, Predict]) -> str:
    """Render predicted and measured step times."""
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
    """Render the link model, with predicted and measured all-reduces."""
    cells = []
    for one in timings:
        model = link.allreduce_seconds(one.payload_bytes, one.ranks)
        cells.append(
            [
                str(one.ranks),
                f"{one.payload_bytes / 1e6:.3f} MB",
                f"{one.seconds * 1e3:.1f} ms",
                f"{model * 1e3:.1f} ms",
                f"{model / one.seconds - 1:+.0%}",
            ]
        )
    title = (
        f"All-reduces: latency {link.turn_seconds * 1e3:.2f} ms, bandwidth"
        f" {link.bytes_per_second / 1e6:.1f} MB/s"
    )
    if not cells:
        return title
    table = render_table(("nodes", "size", "measured", "model", "difference"), cells)
    return f"{title}\n\n{table}"
