"""Verdicts for given measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgeddl.hardware import Sensors, Throttling
from edgeddl.linpack.cluster import NodeOutcome, judge_cluster
from edgeddl.linpack.figures import Link, NodeFigures, Stream
from edgeddl.linpack.hpcc_input import plan_hpcc
from edgeddl.linpack.hpcc_output import HpccResult
from edgeddl.linpack.monitor import SensorMonitor
from edgeddl.linpack.processor import Processor
from edgeddl.linpack.record import NodeRecord, make_record
from edgeddl.linpack.report import render_cluster, render_node
from edgeddl.linpack.verdict import HEALTHY, SICK, UNKNOWN, WARN, judge_efficiency, judge_node

PI = "Raspberry Pi 4 Model B Rev 1.4"
BOARD = NodeFigures(
    engine="hpl",
    blas="openblas",
    threads=4,
    n=10_240,
    seconds=47.0,
    gflops=15.2,
    median_gflops=15.2,
    residual=0.004,
    passed=True,
    processor_share=0.98,
    throttled=False,
    hottest_celsius=71.0,
    stream=Stream(copy=4.9e9, triad=4.4e9),
)
GIGABIT = Link(95e-6, 112e6, 92e-6, 113e6)


@pytest.mark.parametrize(
    ("gflops", "word"), [(16.3, HEALTHY), (14.1, HEALTHY), (11.9, WARN), (8.1, WARN), (7.9, SICK)]
)
def test_the_published_bands_of_a_board(gflops: float, word: str) -> None:
    assert judge_node(replace(BOARD, gflops=gflops), 24.0, PI).rating == word


@pytest.mark.parametrize(
    ("seen", "peak", "word", "cause"),
    [
        ({"gflops": 1.5, "blas": "reference"}, 24.0, SICK, "untuned BLAS"),
        (
            {"gflops": 0.9, "blas": "reference", "processor_share": 0.2},
            24.0,
            SICK,
            "untuned BLAS",
        ),
        ({"gflops": 6.0, "throttled": True}, 24.0, SICK, "throttled"),
        ({"throttled": True}, 24.0, WARN, "throttled"),
        ({"gflops": 7.0, "stream": Stream(1.2e9, 1e9)}, 24.0, SICK, "slow memory"),
        ({"gflops": 5.0, "processor_share": 0.35}, 24.0, WARN, "busy machine: LINPACK got 35%"),
        ({"gflops": 15.0, "processor_share": 0.7}, 24.0, WARN, "busy machine: LINPACK got 70%"),
        ({"gflops": 5.0}, 24.0, SICK, "no cause found"),
        ({"residual": 31.0, "passed": False}, 24.0, SICK, "wrong result, residual 31"),
        ({"seconds": 0.2}, 24.0, UNKNOWN, "too short"),
        ({}, None, UNKNOWN, "not in the table"),
        ({"throttled": True}, None, WARN, "throttled"),
        ({"throttled": None, "processor_share": None}, 24.0, HEALTHY, None),
    ],
)
def test_the_likely_cause_is_reported(
    seen: dict[str, Any], peak: float | None, word: str, cause: str | None
) -> None:
    verdict = judge_node(replace(BOARD, **seen), peak, PI)
    assert verdict.rating == word
    assert cause is None if not verdict.causes else cause in verdict.causes[0]


@pytest.mark.parametrize(
    ("efficiency", "seconds", "word"),
    [(0.76, 140, HEALTHY), (0.6, 140, WARN), (0.4, 140, SICK), (0.1, 2, UNKNOWN)],
)
def test_efficiency(efficiency: float, seconds: float, word: str) -> None:
    assert judge_efficiency(efficiency, seconds).rating == word


def record(host: str, **seen: Any) -> NodeRecord:
    return make_record(host, Processor(PI, 4, 1.5e9, 4), 3 * 2**30, replace(BOARD, **seen))


def joint(gflops: float, link: Link = GIGABIT, **seen: Any) -> HpccResult:
    result = HpccResult(plan_hpcc(20_480, 2), 140.0, gflops, 0.003, True, Stream(5e9, 4e9), link)
    return replace(result, **seen)


def nodes(*records: NodeRecord) -> list[NodeOutcome]:
    return [NodeOutcome(one.host, one) for one in records]


def test_a_healthy_cluster() -> None:
    outcome = judge_cluster(nodes(record("pi-01"), record("pi-02")), joint(24.0))
    assert outcome.verdict.rating == HEALTHY
    assert outcome.efficiency == pytest.approx(24 / 30.4)
    assert "79% of the sum" in render_cluster(outcome)
    assert outcome.to_json()["link"]["bytes_per_second"] == 112e6


def test_a_sick_node_is_named() -> None:
    sick = record("pi-02", gflops=2.0, blas="reference")
    outcome = judge_cluster(nodes(record("pi-01"), sick), joint(13.0))
    assert outcome.verdict.rating == SICK
    assert "pi-02: untuned BLAS" in outcome.verdict.causes[0]
    assert "pi-02: untuned BLAS" in render_cluster(outcome)


def test_a_slow_link_is_named() -> None:
    slow = replace(GIGABIT, bytes_per_second=11.7e6)
    outcome = judge_cluster(nodes(record("pi-01"), record("pi-02")), joint(9.0, slow), ["pi-02"])
    assert outcome.verdict.rating == SICK
    assert any("pi-02: slow link: ping-pong reaches 12 MB/s" in c for c in outcome.verdict.causes)


def test_a_wrong_result_together() -> None:
    wrong = joint(24.0, residual=99.0, passed=False)
    assert judge_cluster(nodes(record("pi-01"), record("pi-02")), wrong).verdict.rating == SICK


def test_a_node_without_a_result_is_sick() -> None:
    lost = NodeOutcome("pi-02", None, "no result: ssh: no route to host")
    outcome = judge_cluster([*nodes(record("pi-01")), lost], None)
    assert outcome.verdict.rating == SICK
    assert outcome.verdict.causes == ("pi-02: no result: ssh: no route to host",)
    assert "not measured" in render_cluster(outcome)


def test_a_board_s_own_report() -> None:
    text = render_node(record("pi-01"))
    assert "24.0 GFLOPS; 63% reached" in text
    assert "14 to 16.5 GFLOPS" in text
    assert "no, at most 71 C" in text


def sensors(bits: int | None, celsius: float | None = 60.0) -> Sensors:
    throttling = None if bits is None else Throttling(bits)
    return Sensors(celsius, None, None, throttling, {}, None, None)


@pytest.mark.parametrize(
    ("first", "last", "throttled"),
    [
        (sensors(0), sensors(0), False),
        (sensors(0), sensors(0x4), True),
        (sensors(0), sensors(0x40000), True),  # came and went between two looks
        (sensors(0x50000), sensors(0x50000), False),  # long ago
        (sensors(None), sensors(None), None),
    ],
)
def test_throttling_is_noticed(first: Sensors, last: Sensors, throttled: bool | None) -> None:
    samples = iter([first, last])
    with SensorMonitor(lambda: None, lambda: next(samples)) as monitor:
        pass
    assert monitor.throttled is throttled
    assert monitor.hottest_celsius == 60.0
