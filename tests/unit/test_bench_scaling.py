"""scripts/bench-scaling: what it plans, keeps and says; runs are stood in for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bench_scaling.benchmark import Benchmark
from bench_scaling.estimate import estimate_run, estimate_step
from bench_scaling.launcher import run_job
from bench_scaling.plan import Case, Run, Steps, plan_runs, plan_steps
from bench_scaling.prediction import LATE_SHARE, make_predictors, predict_step
from bench_scaling.report import render_failures, render_report
from bench_scaling.results import ConditionsDiffer, Failure, Measurement, Results
from bench_scaling.rows import Row, make_rows
from bench_scaling.systems import BadReport, Edgeddl, Figures, Rival, System, join_figures

from edgeddl.comm.model import LinkModel

LINK_MBIT = 800.0  # 100 MB/s


def case(nodes: int, *, system: str = "edgeddl", compression: str = "none", batch: int = 8) -> Case:
    return Case(system, compression, "cifar", batch, nodes)


def measurement(
    of: Case,
    step_seconds: float,
    *,
    wait_seconds: float = 0.0,
    sent_bytes: float = 0.0,
    repeat: int = 0,
    start_seconds: float = 4.0,
) -> Measurement:
    steps = Steps(2, 3)
    figures = Figures(step_seconds, wait_seconds, sent_bytes, ranks=[])
    wall_seconds = start_seconds + steps.total * step_seconds
    return Measurement(Run(of, repeat), steps, figures, wall_seconds)


# Planning


def test_numbers_of_nodes_take_turns_too() -> None:
    """An efficiency compares them: minutes between them would be in it."""
    runs = plan_runs(["edgeddl"], ["none"], ["cifar"], [8], [1, 2], repeats=2)
    assert [(run.repeat, run.case.nodes) for run in runs if not run.case.apart] == [
        (repeat, nodes) for repeat in (0, 1) for nodes in (1, 2)
    ]


def test_systems_take_turns_within_each_repeat() -> None:
    runs = plan_runs(["edgeddl", "torch"], ["none"], ["cifar"], [8], [2], repeats=2)
    turns = ["edgeddl apart", "edgeddl", "torch apart", "torch"]
    assert [(run.repeat, run.case.label) for run in runs] == [
        (repeat, label) for repeat in (0, 1) for label in turns
    ]


def test_edgeddl_shares_a_batch_in_each_way_with_each_compression() -> None:
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


def test_a_single_node_is_measured_when_only_compressed_runs_are_asked_for() -> None:
    runs = plan_runs(["edgeddl"], ["fp16"], ["cifar"], [8], [1, 2], repeats=1)
    alone, apart, compressed = (run.case for run in runs)
    assert (compressed.alone, compressed.beside) == (alone, apart)


@pytest.mark.parametrize(
    ("system", "step_seconds", "expected"),
    [
        ("torch", 1.0, Steps(2, 18)),  # fills the budget
        ("torch", 5.0, Steps(2, 2)),  # just fits
        ("torch", 40.0, Steps(1, 2)),  # a single step is more than the budget
        ("edgeddl", 40.0, Steps(2, 2)),  # its trainer always leaves out two
    ],
)
def test_steps_follow_the_budget(system: str, step_seconds: float, expected: Steps) -> None:
    assert plan_steps(system, step_seconds, budget_seconds=20.0) == expected


# Estimates


def test_the_same_case_tells_best() -> None:
    known = [measurement(case(2), seconds) for seconds in (1.0, 3.0, 2.0)]
    assert estimate_step(case(2), [*known, measurement(case(1), 9.0)]) == 2.0


def test_a_larger_batch_computes_longer_and_waits_as_long() -> None:
    known = [measurement(case(2), 3.0, wait_seconds=1.0), measurement(case(2, batch=1), 99.0)]
    assert estimate_step(case(4, batch=16), known) == 2 * (3.0 - 1.0) + 1.0


def test_other_systems_and_stems_tell_nothing() -> None:
    guess = estimate_step(case(1), [])
    others = [measurement(case(1, system="torch"), 50.0)]
    others.append(measurement(Case("edgeddl", "none", "imagenet", 8, 1), 50.0))
    assert estimate_step(case(1), others) == guess > 0


def test_a_run_takes_its_start_and_its_steps() -> None:
    known = [measurement(case(1), 2.0, start_seconds=7.0)]
    assert estimate_run(case(1), Steps(1, 4), known) == 7.0 + 5 * 2.0


# Rows


def rows_of(*measurements: Measurement) -> dict[Case, Row]:
    return {row.case: row for row in make_rows(measurements, LINK_MBIT)}


def test_rows_are_medians_over_runs() -> None:
    known = [measurement(case(1), s, repeat=i) for i, s in enumerate((2.0, 9.0, 1.0))]
    (row,) = make_rows(known, LINK_MBIT)
    assert (row.runs, row.step_seconds, row.images_per_second) == (3, 2.0, 4.0)


def test_efficiency_is_against_as_many_single_nodes() -> None:
    rows = rows_of(measurement(case(1), 2.0), measurement(case(4), 2.5, wait_seconds=0.4))
    assert rows[case(4)].efficiency == pytest.approx(0.8)
    assert rows[case(4)].images_per_second == pytest.approx(
        4 * rows[case(1)].images_per_second * 0.8
    )
    assert rows[case(4)].compute_seconds == pytest.approx(2.1)


def test_efficiency_of_compressed_runs_is_against_the_same_single_node() -> None:
    compressed = case(2, compression="fp16")
    rows = rows_of(measurement(case(1), 2.0), measurement(compressed, 4.0))
    assert rows[compressed].efficiency == pytest.approx(0.5)


def test_communication_is_judged_beside_the_same_nodes_apart() -> None:
    known = [measurement(case(1), 2.0), measurement(case(4).beside, 2.25)]
    row = rows_of(*known, measurement(case(4, compression="fp16"), 2.5))
    joint = row[case(4, compression="fp16")]
    assert joint.communication_efficiency == pytest.approx(0.9)
    assert joint.efficiency == pytest.approx(0.8)
    assert row[case(4).beside].efficiency == pytest.approx(2.0 / 2.25)


def test_figures_of_nodes_apart_are_those_of_their_summed_throughput() -> None:
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
    [(150e6, 2.0), (500e6, 5.0)],  # hidden behind computing; longer than computing
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
    (row,) = make_rows([measurement(case(1), 2.0)], None)
    assert row.wire_seconds is row.limit_seconds is None


def test_rows_are_in_order_whenever_they_were_measured() -> None:
    cases = [case(1), case(1, system="torch"), case(2), case(2, compression="fp16"), case(4)]
    known = [measurement(one, 1.0) for one in reversed(cases)]
    assert [row.case for row in make_rows(known, LINK_MBIT)] == cases


# Reports


def test_the_table_has_every_figure() -> None:
    together = measurement(case(2), 2.5, wait_seconds=0.4, sent_bytes=44e6)
    text = render_report(make_rows([measurement(case(1), 2.0), together], LINK_MBIT))
    *_, line = text.splitlines()
    expected = "cifar 8 2 edgeddl 6.4 80% 2.50 s - 2.10 s 0.40 s 0.44 s 80% 1"
    assert line.split() == expected.split()
    assert "Predicted" not in text


def linked_row(alone: float, step_seconds: float, wait_seconds: float, sent_bytes: float) -> Row:
    """On 4 nodes, over links of 100 MB/s."""
    figures = {"wait_seconds": wait_seconds, "sent_bytes": sent_bytes}
    measured = [measurement(case(1), alone), measurement(case(4), step_seconds, **figures)]
    return make_rows(measured, LINK_MBIT)[-1]


def test_what_backward_hides_does_not_show_on_more_nodes() -> None:
    """15 MB sent by each of 4 are 10 MB of gradients: 0.15 s on 4 nodes, 0.2 s at the most."""
    row = linked_row(3.0, 3.1, wait_seconds=0.1, sent_bytes=15e6)
    link = LinkModel(turn_seconds=0.0, bytes_per_second=100e6)
    for nodes in (2, 8, 64):
        assert predict_step(row, link, LINK_MBIT, nodes) == pytest.approx(3.1)


def test_what_backward_cannot_hide_is_waited_for() -> None:
    """300 MB of gradients: 5.25 s on 8 nodes, of which 3 s are hidden: 2 s beside backward."""
    link = LinkModel(turn_seconds=0.01, bytes_per_second=100e6)
    allreduce = 4.5 + 6 * 0.01
    waited = allreduce - 2.0 - LATE_SHARE * allreduce
    row = linked_row(3.0, 3.0 + waited, wait_seconds=waited, sent_bytes=450e6)
    assert predict_step(row, link, LINK_MBIT, 4) == pytest.approx(3.0 + waited)
    assert predict_step(row, link, LINK_MBIT, 8) == pytest.approx(3.0 + 5.25 + 14 * 0.01 - 3.0)


def test_sending_takes_of_the_processor_by_the_bytes() -> None:
    """0.3 s on 4 nodes, which send 3/2 of their gradients; on 2 nodes they send all of them."""
    row = linked_row(3.0, 3.3, wait_seconds=0.0, sent_bytes=15e6)
    link = LinkModel(turn_seconds=0.0, bytes_per_second=100e6)
    assert predict_step(row, link, LINK_MBIT, 2) == pytest.approx(3.2)
    assert predict_step(row, link, LINK_MBIT, 4) == pytest.approx(3.3)


def test_only_edgeddl_is_predicted_and_beside_what_was_measured() -> None:
    rows = make_rows(
        [
            measurement(case(1), 3.0),
            measurement(case(4), 3.1, wait_seconds=0.1, sent_bytes=15e6),
            measurement(case(4, system="torch"), 6.0, wait_seconds=0.1, sent_bytes=15e6),
        ],
        LINK_MBIT,
    )
    predictors = make_predictors(rows, LinkModel(0.0, 100e6), LINK_MBIT)
    assert list(predictors) == [case(4).series]
    text = render_report(rows, predictors)
    compared = text.partition("The model beside")[2].partition("Predicted")[0]
    assert "3.10 s" in compared
    assert "+0%" in compared
    assert "torch" not in compared


def test_predictions_come_from_the_model_they_are_given() -> None:
    rows = make_rows([measurement(case(1), 2.0), measurement(case(2), 2.5)], LINK_MBIT)
    text = render_report(rows, {case(2).series: lambda nodes: 2.0 + nodes / 4})
    predicted = text.partition("Predicted, not measured")[2].splitlines()[-4:]
    assert predicted[0].split() == ["cifar", "8", "8", "edgeddl", "16.0", "50%", "4.00", "s"]
    assert [line.split()[2] for line in predicted] == ["8", "16", "32", "64"]


def test_failures_name_system_and_task_and_what_was_said() -> None:
    failure = Failure(Run(case(2, system="torch"), 0), "Traceback\nMemoryError")
    text = render_failures([failure])
    assert text.startswith("failed: 1 run\ntorch, cifar stem, batch 8, 2 nodes\n")
    assert text.endswith("MemoryError")


# Results


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    first = Results(path, {"threads": 1})
    first.add(measurement(case(2), 2.5, sent_bytes=1.0))
    first.add_failure(Failure(Run(case(4), 0), "died"))
    again = Results(path, {"threads": 1})
    again.load()
    assert list(again) == list(first)
    assert Run(case(2), 0) in again and Run(case(2), 1) not in again
    assert not again.has_failed(case(4))  # so that it is tried again


def test_results_of_other_conditions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    Results(path, {"threads": 1, "cluster": "pi"}).write()
    with pytest.raises(ConditionsDiffer, match=r"^threads: 1 then, 2 now$"):
        Results(path, {"threads": 2, "cluster": "pi"}).load()


def test_a_system_that_joins_or_leaves_is_no_other_condition(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    known = [{"threads": 1}, {"threads": 1, "version of torch": "2"}, {"threads": 1}]
    for conditions in known:
        results = Results(path, conditions)
        if path.exists():
            results.load()
        results.write()
    assert json.loads(path.read_text())["conditions"] == known[1]


# Runs


class StandInSystem:
    """Its command is the report's path; what it trains takes a second a step."""

    def command(self, case: Case, steps: Steps, report: Path) -> list[str]:
        return [case.system, str(report)]

    def read(self, report: Path) -> Figures:
        if report.read_text() == "bad":
            raise BadReport("not the same parameters")
        return Figures(1.0, 0.0, 0.0, ranks=[])


class StandInLauncher:
    """Writes reports, except for systems whose behaviour is a failure."""

    address, interface, node_count, link_mbit = "", "", None, None

    def __init__(self, behaviour: dict[str, str]) -> None:
        self._behaviour = behaviour
        self.started: list[str] = []

    def run(
        self, command: Sequence[str], nodes: int, timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        system, report = command
        self.started.append(system)
        behaviour = self._behaviour.get(system, "good")
        if behaviour == "raises":
            return subprocess.CompletedProcess(command, 1, "starting\nMemoryError\n")
        if behaviour == "interrupted":
            raise KeyboardInterrupt
        if behaviour != "ends without a report":
            Path(report).write_text(behaviour)
        return subprocess.CompletedProcess(command, 0, "last words\n")

    def run_apart(
        self, commands: Sequence[Sequence[str]], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        return [self.run(command, 1, timeout_seconds) for command in commands][-1]

    def describe(self) -> dict[str, Any]:
        return {}


def test_nodes_apart_report_each_for_itself(tmp_path: Path) -> None:
    launcher = StandInLauncher({})
    benchmark = Benchmark(launcher, {"edgeddl": StandInSystem()}, 20, timeout_seconds=1)
    run = Run(case(3).beside, 0)
    assert benchmark.measure(run, Steps(2, 3)).figures.step_seconds == pytest.approx(1.0)
    assert launcher.started == ["edgeddl"] * 3


def measure(folder: Path, *systems: str, **behaviour: str) -> tuple[StandInLauncher, Results]:
    """Two repeats of each system; on top of what the folder's results already have."""
    launcher, system = StandInLauncher(behaviour), StandInSystem()
    by_name: dict[str, System] = dict.fromkeys(systems, system)
    results = Results(folder / "results.json", {})
    if results.path.exists():
        results.load()
    runs = plan_runs(systems, ["none"], ["cifar"], [8], [1], repeats=2)
    benchmark = Benchmark(launcher, by_name, seconds_per_run=20, timeout_seconds=1)
    try:
        benchmark.measure_all(runs, results)
    except KeyboardInterrupt:
        launcher.started.append("Ctrl-C")
    return launcher, results


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("raises", "exit code 1\nstarting\nMemoryError"),
        ("ends without a report", "exit code 0\nlast words"),
        ("bad", "not the same parameters"),
    ],
)
def test_the_others_go_on_when_one_fails(tmp_path: Path, behaviour: str, said: str) -> None:
    launcher, results = measure(tmp_path, "edgeddl", "torch", torch=behaviour)
    assert launcher.started == ["edgeddl", "torch", "edgeddl"]
    assert [one.run.case.system for one in results] == ["edgeddl", "edgeddl"]
    (failure,) = results.failures
    assert failure.run.case.system == "torch"
    assert failure.last_words == said


def test_an_interrupted_benchmark_is_resumed(tmp_path: Path) -> None:
    launcher, _ = measure(tmp_path, "edgeddl", "torch", torch="interrupted")
    assert launcher.started == ["edgeddl", "torch", "Ctrl-C"]
    written = json.loads((tmp_path / "results.json").read_text())
    assert len(written["measurements"]) == 1
    launcher, results = measure(tmp_path, "edgeddl", "torch")
    assert launcher.started == ["torch", "edgeddl", "torch"]
    assert len(results) == 4


def test_a_job_that_does_not_end_is_ended() -> None:
    done = run_job(["sh", "-c", "echo waiting; sleep 60"], timeout_seconds=0.5)
    assert done.returncode != 0
    assert done.stdout.split("\n")[0] == "waiting"
    assert done.stdout.endswith("not ended after 0.5 s")


# Systems


def test_no_step_of_edgeddl_has_fewer_images_than_the_others(tmp_path: Path) -> None:
    def images(batch: int, steps: Steps) -> int:
        command = Edgeddl(1).command(case(4, batch=batch), steps, tmp_path / "report.json")
        (option,) = (word for word in command if word.startswith("--limit-train="))
        return int(option.partition("=")[2])

    assert images(8, Steps(2, 3)) == 8 * 4 * 5
    assert images(128, Steps(2, 100)) == 128 * 4 * 19  # as many as there are


def test_ranks_that_part_are_no_data_parallel_training(tmp_path: Path) -> None:
    rank = {"step_seconds": [1.0], "wait_seconds": [0.5], "gradient_bytes": 8}
    report = tmp_path / "report.json"
    rival = Rival(Path("python"), "module", threads=1)
    same = [rank | {"parameters_checksum": 1}] * 2
    report.write_text(json.dumps({"ranks": same}))
    assert rival.read(report) == Figures(1.0, 0.5, 8, ranks=same)
    report.write_text(json.dumps({"ranks": [same[0], rank | {"parameters_checksum": 2}]}))
    with pytest.raises(BadReport, match="different parameters"):
        rival.read(report)
