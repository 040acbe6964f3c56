"""What more nodes would do: the links' alpha-beta model, and what backward can hide. Pure.

    step(N)    = compute(N) + others + max(0, allreduce(N) - hidden(N))
    hidden(N)  = 2/3 compute(N) + min(1/3 compute(N), late share of allreduce(N))
    compute(N) = of nodes apart + what sending takes of the processor, in proportion to the bytes
    allreduce(N) = the step's all-reduces one after the other

Backward is two thirds of computing, and communication goes on beside it; late gradients, a fifth of
ResNet-18's, also travel beside forward. The all-reduce of N nodes follows from those measured on 2
to 4. `others` is what ranks waited for each other beside that; it and the cost of sending are taken
from the series' row with the most nodes.
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
    """For each series of edgeddl, from its row with the most nodes.

    step_payloads: bytes of each of a step's all-reduces.
    Not for one with uneven shares: of which speeds more nodes would be, nobody knows.
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
    """Seconds of a step of the row's series on so many nodes."""
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
    """Of its gradients, what a rank sends in an all-reduce."""
    return 2 * (nodes - 1) / nodes


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
    """The links as the model takes them, beside the all-reduces that were measured."""
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
        f"All-reduces: a turn takes {link.turn_seconds * 1e3:.2f} ms, a link carries"
        f" {link.bytes_per_second / 1e6:.1f} MB/s"
    )
    if not cells:
        return title
    table = render_table(("nodes", "size", "measured", "model", "difference"), cells)
    return f"{title}\n\n{table}"
