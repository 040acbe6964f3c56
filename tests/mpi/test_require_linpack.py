"""mpirun python -m edgeddl.train --require-linpack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from edgeddl.__main__ import main

pytestmark = pytest.mark.mpi

TRAIN = (
    "-m", "edgeddl.train", "--dataset", "shapes", "--model", "resnet9", "--limit-train", "8",
    "--limit-test", "4", "--batch-size", "4", "--max-steps", "1", "--require-linpack",
)  # fmt: skip


def test_a_host_without_a_result_is_named_once(
    mpirun: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = mpirun(2, *TRAIN, "--run-dir", run, env={"EDGEDDL_STATE": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr.count("LINPACK has not been run on") == 1
    assert "python -m edgeddl linpack" in done.stderr
    assert not run.exists()


def test_a_passed_stage_is_shown_with_its_date(
    mpirun: Callable[..., CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEDDL_STATE", str(tmp_path))
    assert main(["linpack", "--size", "100", "--repeats", "1"]) == 0
    done = mpirun(2, *TRAIN, "--run-dir", tmp_path / "run", timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("GFLOPS by numpy on 20") == 1
