"""Reports of runs under mpirun: finished, running, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeddl.report.results import losses
from edgeddl.report.run import read_run
from tests.mpi.test_train import checkpoints, rank_process, running, train, wait_for
from tests.support import REPOSITORY

pytestmark = pytest.mark.mpi

NAME = "tests.models-TinyNet-shapes"


def report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgeddl", "report", *arguments], cwd=folder, text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, check=False,
    )  # fmt: skip


def numbers(folder: Path) -> dict[str, Any]:
    done = report(folder, f"runs/{NAME}", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["runs"][0]


def test_two_runs_of_two_ranks_side_by_side(tmp_path: Path) -> None:
    assert train(tmp_path, 2).returncode == 0
    done = train(tmp_path, 2, "--compression", "fp16", "--timeline", "traces/timeline.json")
    assert done.returncode == 0, done.stderr
    done = report(tmp_path, f"runs/{NAME}", f"runs/{NAME}-2", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "--compression" in done.stdout and "fp16" in done.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") >= 5 and "http" not in page
    trace = json.loads((tmp_path / "traces" / "timeline.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"]} == {0, 1}
    for rank in range(2):
        assert (
            "global batch" in (tmp_path / "runs" / NAME / "logs" / f"rank-{rank}.log").read_text()
        )


def test_a_timeline_changes_no_bit(tmp_path: Path) -> None:
    summaries = []
    for folder, options in (("plain", ()), ("traced", ("--timeline", "timeline.json"))):
        (tmp_path / folder).mkdir()
        assert train(tmp_path / folder, 2, "--model", "resnet9", *options).returncode == 0
        text = (tmp_path / folder / "runs" / "resnet9-shapes" / "summary.json").read_text()
        summaries.append(json.loads(text))
    assert summaries[0]["step_losses"] == summaries[1]["step_losses"]


def test_running_killed_and_resumed(tmp_path: Path) -> None:
    options = ("--epochs", "10000", "--checkpoint-every", "1")
    events = tmp_path / "runs" / NAME / "events.jsonl"
    with running(tmp_path, 2, *options) as job:
        wait_for(lambda: events.exists() and events.read_text().count('"event":"steps"') >= 3)
        alive = numbers(tmp_path)
        assert alive["status"] == "open" and alive["damaged_lines"] == 0
        assert len(alive["losses"]) >= 3
        os.kill(rank_process(job, 0), signal.SIGKILL)
        job.communicate(timeout=40)
    killed = numbers(tmp_path)
    assert killed["status"] == "open"
    assert "running or killed" in report(tmp_path, f"runs/{NAME}").stdout
    steps = int(checkpoints(tmp_path)[-1].stem.rpartition("-")[2]) + 3
    done = train(tmp_path, 2, *options, "--resume", "auto", "--max-steps", str(steps))
    assert done.returncode == 0, done.stderr
    resumed = numbers(tmp_path)
    assert (resumed["status"], len(resumed["starts"])) == ("finished", 2)
    found = [step for step, _ in losses(read_run(events.parent))]
    assert found == sorted(set(found)) and found[-1] == steps


def test_a_failure_on_one_rank_is_in_its_log(tmp_path: Path) -> None:
    assert train(tmp_path, 2, "--model", "tests.models:FailingNet").returncode == 1
    log = tmp_path / "runs" / "tests.models-FailingNet-shapes" / "logs" / "rank-1.log"
    assert "ZeroDivisionError: a bug in rank 1's model" in log.read_text()
