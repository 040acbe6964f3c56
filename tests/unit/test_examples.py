"""The scripts of docs/examples run, each in seconds, and stay short."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY

EXAMPLES = REPOSITORY / "docs/examples"
RESULTS = {
    "own_pictures": "red/0.png is red",
    "own_model": "__main__:SmallNet: 5,434 parameters",
    "fine_tuning": "classes: horizontal, vertical",
    "own_extension": "wrote 8 steps to losses.csv",
    "sweep": "best: runs/sweep/lr",
}


@pytest.mark.parametrize("name", RESULTS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    script = EXAMPLES / f"{name}.py"
    assert len(script.read_text().splitlines()) < 60
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert RESULTS[name] in done.stdout


def test_every_script_is_tested() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == {*RESULTS, "round_robin"}  # a policy: tests/unit/training/test_own_policy.py
