"""`mpirun -np N edgeddl evaluate`: the same result as on one rank."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.unit.training.training_runs import train

pytestmark = pytest.mark.mpi


def test_three_ranks_count_as_one(
    mpirun: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    train(tmp_path / "run", epochs=1)
    files = []
    for ranks in (1, 3):
        target = tmp_path / f"{ranks}.json"
        done = mpirun(
            ranks, "-m", "edgeddl", "evaluate", tmp_path / "run", "--limit-test", "300",
            "--json", target,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("accuracy") == 2  # the table's heading and the line below it
        files.append(target.read_text())
    assert files[0] == files[1]
    assert json.loads(files[0])["images"] == 300


def test_a_missing_run_is_reported_once(
    mpirun: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    done = mpirun(2, "-m", "edgeddl", "evaluate", tmp_path / "absent")
    assert done.returncode == 2
    assert done.stderr.count("absent: there is no such checkpoint") == 1
