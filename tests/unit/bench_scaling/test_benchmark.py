"""The sequence of runs, with a fake launcher."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bench_scaling.benchmark import Benchmark
from bench_scaling.plan import Case, Run, Steps, plan_runs
from bench_scaling.results import Results
from bench_scaling.systems import BadReport, Figures, System

from tests.unit.bench_scaling.support import case


class StandInSystem:
    """A system whose command is the report's path and whose steps take one second."""

    def command(self, case: Case, steps: Steps, report: Path) -> list[str]:
        return [case.system, str(report)]

    def read(self, report: Path) -> Figures:
        if report.read_text() == "bad":
            raise BadReport("not the same parameters")
        return Figures(1.0, 0.0, 0.0, ranks=[])


class StandInLauncher:
    """Writes reports, except for systems whose behaviour is a failure."""

    address, interface, node_count = "", "", None

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

    def link_mbit(self, nodes: int) -> float | None:
        return None

    def describe(self) -> dict[str, Any]:
        return {}


def test_nodes_apart_report_each_for_itself(tmp_path: Path) -> None:
    launcher = StandInLauncher({})
    benchmark = Benchmark(launcher, {"edgeddl": StandInSystem()}, 20, timeout_seconds=1)
    run = Run(case(3).beside, 0)
    assert benchmark.measure(run, Steps(2, 3)).figures.step_seconds == pytest.approx(1.0)
    assert launcher.started == ["edgeddl"] * 3


def measure(folder: Path, *systems: str, **behaviour: str) -> tuple[StandInLauncher, Results]:
    """Make two repeats of each system, in addition to the results in the folder."""
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
    assert failure.output == said


def test_an_interrupted_benchmark_is_resumed(tmp_path: Path) -> None:
    launcher, _ = measure(tmp_path, "edgeddl", "torch", torch="interrupted")
    assert launcher.started == ["edgeddl", "torch", "Ctrl-C"]
    written = json.loads((tmp_path / "results.json").read_text())
    assert len(written["measurements"]) == 1
    launcher, results = measure(tmp_path, "edgeddl", "torch")
    assert launcher.started == ["torch", "edgeddl", "torch"]
    assert len(results) == 4
