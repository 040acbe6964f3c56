"""Predictions for more nodes."""

from __future__ import annotations

import pytest
from bench_scaling.payloads import step_payloads
from bench_scaling.prediction import LATE_SHARE, make_predictors, predict_step
from bench_scaling.report import render_report
from bench_scaling.rows import Row, make_rows

from edgeddl.comm.model import LinkModel
from tests.unit.bench_scaling.support import case, link_mbit, measurement


def linked_row(alone: float, step_seconds: float, wait_seconds: float, sent_bytes: float) -> Row:
    """Make a row of 4 nodes with links of 100 MB/s."""
    figures = {"wait_seconds": wait_seconds, "sent_bytes": sent_bytes}
    measured = [measurement(case(1), alone), measurement(case(4), step_seconds, **figures)]
    return make_rows(measured, link_mbit)[-1]


def test_hidden_communication_does_not_slow_more_nodes() -> None:
    """15 MB sent by each of 4 nodes are 10 MB of gradients: 0.15 s on 4 nodes, at most 0.2 s."""
    row = linked_row(3.0, 3.1, wait_seconds=0.1, sent_bytes=15e6)
    link = LinkModel(turn_seconds=0.0, bytes_per_second=100e6)
    for nodes in (2, 8, 64):
        assert predict_step(row, link, [10**7], nodes) == pytest.approx(3.1)


def test_communication_beyond_backward_is_exposed() -> None:
    """300 MB of gradients take 5.25 s on 8 nodes; 3 s are hidden, 2 s of them by backward."""
    link = LinkModel(turn_seconds=0.01, bytes_per_second=100e6)
    allreduce = 4.5 + 6 * 0.01
    waited = allreduce - 2.0 - LATE_SHARE * allreduce
    row = linked_row(3.0, 3.0 + waited, wait_seconds=waited, sent_bytes=450e6)
    assert predict_step(row, link, [3 * 10**8], 4) == pytest.approx(3.0 + waited)
    assert predict_step(row, link, [3 * 10**8], 8) == pytest.approx(3.0 + 5.25 + 14 * 0.01 - 3.0)


def test_the_cpu_time_for_sending_is_proportional_to_bytes() -> None:
    """0.3 s on 4 nodes, which send 3/2 of their gradients; on 2 nodes they send all of them."""
    row = linked_row(3.0, 3.3, wait_seconds=0.0, sent_bytes=15e6)
    link = LinkModel(turn_seconds=0.0, bytes_per_second=100e6)
    assert predict_step(row, link, [10**7], 2) == pytest.approx(3.2)
    assert predict_step(row, link, [10**7], 4) == pytest.approx(3.3)


def test_only_edgeddl_is_predicted_and_validated() -> None:
    rows = make_rows(
        [
            measurement(case(1), 3.0),
            measurement(case(4), 3.1, wait_seconds=0.1, sent_bytes=15e6),
            measurement(case(4, system="torch"), 6.0, wait_seconds=0.1, sent_bytes=15e6),
        ],
        link_mbit,
    )
    predictors = make_predictors(rows, LinkModel(0.0, 100e6), lambda case: [10**7])
    assert list(predictors) == [case(4).series]
    text = render_report(rows, predictors)
    compared = text.partition("Model and measurement")[2].partition("Predicted")[0]
    assert "3.10 s" in compared
    assert "+0%" in compared
    assert "torch" not in compared


def test_predictions_use_the_given_model() -> None:
    rows = make_rows([measurement(case(1), 2.0), measurement(case(2), 2.5)], link_mbit)
    text = render_report(rows, {case(2).series: lambda nodes: 2.0 + nodes / 4})
    predicted = text.partition("Predicted, not measured")[2].splitlines()[-4:]
    assert predicted[0].split() == ["cifar", "8", "8", "edgeddl", "16.0", "50%", "4.00", "s"]
    assert [line.split()[2] for line in predicted] == ["8", "16", "32", "64"]


def test_each_all_reduce_has_its_own_latency() -> None:
    """Two of 150 MB instead of one of 300 have 14 more latencies on 8 nodes, all exposed."""
    link = LinkModel(turn_seconds=0.01, bytes_per_second=100e6)
    row = linked_row(3.0, 3.0, wait_seconds=0.0, sent_bytes=450e6)
    one, two = (
        predict_step(row, link, payloads, 8) for payloads in ([3 * 10**8], [15 * 10**7] * 2)
    )
    assert two - one == pytest.approx(14 * 0.01)


def test_payloads_are_those_of_a_step() -> None:
    """ResNet-18 for CIFAR-10 has 11,173,962 parameters; buckets start at cache lines."""
    full, half, few = (
        step_payloads(case(4, compression=name)) for name in ("none", "fp16", "powersgd")
    )
    assert 44_695_848 <= sum(full) < 44_695_848 + 64 * 62
    assert sum(half) == pytest.approx(sum(full) / 2, rel=0.02)
    assert sum(few) < sum(full) / 40
    assert len(full) == len(half) > 1
