"""The plan of runs, and estimates of their duration."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_scaling.estimate import estimate_run, estimate_step
from bench_scaling.plan import Case, Steps, plan_runs, plan_steps
from bench_scaling.systems import Edgeddl

from tests.unit.bench_scaling.support import case, measurement


def test_numbers_of_nodes_alternate_too() -> None:
    """Efficiency compares them, so they must not be measured minutes apart."""
    runs = plan_runs(["edgeddl"], ["none"], ["cifar"], [8], [1, 2], repeats=2)
    assert [(run.repeat, run.case.nodes) for run in runs if not run.case.apart] == [
        (repeat, nodes) for repeat in (0, 1) for nodes in (1, 2)
    ]


def test_systems_alternate_within_each_repeat() -> None:
    runs = plan_runs(["edgeddl", "torch"], ["none"], ["cifar"], [8], [2], repeats=2)
    turns = ["edgeddl apart", "edgeddl", "torch apart", "torch"]
    assert [(run.repeat, run.case.label) for run in runs] == [
        (repeat, label) for repeat in (0, 1) for label in turns
    ]


def test_edgeddl_combines_balances_and_compressions() -> None:
    runs = plan_runs(
        ["edgeddl", "torch"], ["none", "fp16"], ["cifar"], [8], [1, 2], 1, ["even", "auto"]
    )
    assert [(run.case.nodes, run.case.label) for run in runs] == [
        (1, "edgeddl"), (1, "torch"),
        (2, "edgeddl apart"), (2, "edgeddl"), (2, "edgeddl fp16"),
        (2, "edgeddl auto"), (2, "edgeddl fp16 auto"),
        (2, "torch apart"), (2, "torch"),
    ]  # fmt: skip
    shared = runs[6].case
    command = Edgeddl(threads=1).command(shared, Steps(2, 3), Path("report.json"))
    assert "--balance=auto" in command and "--compression=fp16" in command
    assert (shared.alone, shared.beside) == (runs[0].case, runs[2].case)
    assert sorted((run.case for run in runs[2:7]), key=lambda case: case.order) == [
        run.case for run in runs[2:7]
    ]


def test_small_tasks_come_first() -> None:
    runs = plan_runs(["edgeddl"], ["none"], ["cifar"], [32, 8], [4, 1], repeats=1)
    tasks = [(run.case.batch, run.case.nodes) for run in runs if not run.case.apart]
    assert tasks == [(8, 1), (8, 4), (32, 1), (32, 4)]


def test_only_edgeddl_on_several_nodes_compresses() -> None:
    runs = plan_runs(["edgeddl", "torch"], ["none", "fp16"], ["cifar"], [8], [1, 2], repeats=1)
    assert [(run.case.nodes, run.case.label) for run in runs] == [
        (1, "edgeddl"), (1, "torch"),
        (2, "edgeddl apart"), (2, "edgeddl"), (2, "edgeddl fp16"),
        (2, "torch apart"), (2, "torch"),
    ]  # fmt: skip


def test_a_single_node_is_measured_for_compressed_runs_too() -> None:
    runs = plan_runs(["edgeddl"], ["fp16"], ["cifar"], [8], [1, 2], repeats=1)
    alone, apart, compressed = (run.case for run in runs)
    assert (compressed.alone, compressed.beside) == (alone, apart)


@pytest.mark.parametrize(
    ("system", "step_seconds", "expected"),
    [
        ("torch", 1.0, Steps(2, 18)),  # fills the budget
        ("torch", 5.0, Steps(2, 2)),  # just fits
        ("torch", 40.0, Steps(1, 2)),  # a single step exceeds the budget
        ("edgeddl", 40.0, Steps(2, 2)),  # its trainer always excludes two
    ],
)
def test_steps_follow_the_budget(system: str, step_seconds: float, expected: Steps) -> None:
    assert plan_steps(system, step_seconds, budget_seconds=20.0) == expected


# Estimates


def test_the_same_case_is_the_best_estimate() -> None:
    known = [measurement(case(2), seconds) for seconds in (1.0, 3.0, 2.0)]
    assert estimate_step(case(2), [*known, measurement(case(1), 9.0)]) == 2.0


def test_a_larger_batch_computes_longer_and_waits_equally() -> None:
    known = [measurement(case(2), 3.0, wait_seconds=1.0), measurement(case(2, batch=1), 99.0)]
    assert estimate_step(case(4, batch=16), known) == 2 * (3.0 - 1.0) + 1.0


def test_other_systems_and_stems_are_ignored() -> None:
    guess = estimate_step(case(1), [])
    others = [measurement(case(1, system="torch"), 50.0)]
    others.append(measurement(Case("edgeddl", "none", "imagenet", 8, 1), 50.0))
    assert estimate_step(case(1), others) == guess > 0


def test_a_run_includes_start_up_and_steps() -> None:
    known = [measurement(case(1), 2.0, start_seconds=7.0)]
    assert estimate_run(case(1), Steps(1, 4), known) == 7.0 + 5 * 2.0
