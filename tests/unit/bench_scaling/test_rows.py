"""Evaluation of measurements, and tables."""

from __future__ import annotations

import pytest
from bench_scaling.plan import Case, Run
from bench_scaling.report import render_failures, render_report
from bench_scaling.results import Failure, Measurement
from bench_scaling.rows import Row, make_rows
from bench_scaling.systems import Figures, join_figures

from tests.unit.bench_scaling.support import case, link_mbit, measurement


def rows_of(*measurements: Measurement) -> dict[Case, Row]:
    return {row.case: row for row in make_rows(measurements, link_mbit)}


def test_rows_are_medians_over_runs() -> None:
    known = [measurement(case(1), s, repeat=i) for i, s in enumerate((2.0, 9.0, 1.0))]
    (row,) = make_rows(known, link_mbit)
    assert (row.runs, row.step_seconds, row.images_per_second) == (3, 2.0, 4.0)


def test_efficiency_is_relative_to_single_nodes() -> None:
    rows = rows_of(measurement(case(1), 2.0), measurement(case(4), 2.5, wait_seconds=0.4))
    assert rows[case(4)].efficiency == pytest.approx(0.8)
    assert rows[case(4)].images_per_second == pytest.approx(
        4 * rows[case(1)].images_per_second * 0.8
    )
    assert rows[case(4)].compute_seconds == pytest.approx(2.1)


def test_efficiency_of_compressed_runs_uses_the_same_single_node() -> None:
    compressed = case(2, compression="fp16")
    rows = rows_of(measurement(case(1), 2.0), measurement(compressed, 4.0))
    assert rows[compressed].efficiency == pytest.approx(0.5)


def test_communication_efficiency_is_relative_to_independent_nodes() -> None:
    known = [measurement(case(1), 2.0), measurement(case(4).beside, 2.25)]
    row = rows_of(*known, measurement(case(4, compression="fp16"), 2.5))
    joint = row[case(4, compression="fp16")]
    assert joint.communication_efficiency == pytest.approx(0.9)
    assert joint.efficiency == pytest.approx(0.8)
    assert row[case(4).beside].efficiency == pytest.approx(2.0 / 2.25)


def test_figures_of_independent_nodes_add_their_throughput() -> None:
    fast, slow = Figures(1.0, 0.0, 0.0, ranks=[{"rank": 0}]), Figures(3.0, 0.0, 0.0, ranks=[{}])
    joined = join_figures([fast, slow])
    assert 2 / joined.step_seconds == pytest.approx(1 / 1.0 + 1 / 3.0)
    assert joined.ranks == [{"rank": 0}, {}]


def test_without_a_single_node_there_is_no_efficiency() -> None:
    other = measurement(case(1, system="torch"), 1.0)
    row = rows_of(measurement(case(2), 2.0), other)[case(2)]
    assert row.efficiency is row.limit_seconds is row.share_of_limit is None


@pytest.mark.parametrize(
    ("sent_bytes", "limit_seconds"),
    [(150e6, 2.0), (500e6, 5.0)],  # shorter and longer than computing
)
def test_the_limit_is_the_longer_of_computing_and_sending(
    sent_bytes: float, limit_seconds: float
) -> None:
    together = measurement(case(2), 10.0, sent_bytes=sent_bytes)
    row = rows_of(measurement(case(1), 2.0), together)[case(2)]
    assert row.wire_seconds == pytest.approx(sent_bytes / 100e6)
    assert row.limit_seconds == pytest.approx(limit_seconds)
    assert row.share_of_limit == pytest.approx(limit_seconds / 10)


def test_without_a_link_there_is_no_limit() -> None:
    (row,) = make_rows([measurement(case(1), 2.0)], lambda nodes: None)
    assert row.wire_seconds is row.limit_seconds is None


def test_rows_are_sorted() -> None:
    cases = [case(1), case(1, system="torch"), case(2), case(2, compression="fp16"), case(4)]
    known = [measurement(one, 1.0) for one in reversed(cases)]
    assert [row.case for row in make_rows(known, link_mbit)] == cases


def test_each_number_of_nodes_uses_its_own_links() -> None:
    """The third node's link is ten times slower."""
    known = [measurement(case(nodes), 2.0, sent_bytes=1e8) for nodes in (2, 3)]
    two, three = make_rows(known, lambda nodes: 800.0 if nodes < 3 else 80.0)
    assert (two.wire_seconds, three.wire_seconds) == (1.0, 10.0)


# Reports


def test_the_table_has_every_figure() -> None:
    together = measurement(case(2), 2.5, wait_seconds=0.4, sent_bytes=44e6)
    text = render_report(make_rows([measurement(case(1), 2.0), together], link_mbit))
    *_, line = text.splitlines()
    expected = "cifar 8 2 edgeddl 6.4 80% 2.50 s - 2.10 s 0.40 s 0.44 s 80% 1"
    assert line.split() == expected.split()
    assert "Predicted" not in text


def test_failures_show_system_task_and_output() -> None:
    failure = Failure(Run(case(2, system="torch"), 0), "Traceback\nMemoryError")
    text = render_failures([failure])
    assert text.startswith("failed: 1 run\ntorch, cifar stem, batch 8, 2 nodes\n")
    assert text.endswith("MemoryError")
