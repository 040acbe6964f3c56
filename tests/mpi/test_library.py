"""A script that calls edgeddl.train, under mpirun."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support import REPOSITORY

pytestmark = pytest.mark.mpi

SCRIPT = """
import edgeddl

for lr in (0.05, 0.01):
    run = edgeddl.train("tests.models:TinyNet", "shapes", limit_train=60, limit_test=30,
                        batch_size=8, epochs=1, lr=lr, progress="none")
    print("finished", run.folder, run.summary["steps"], flush=True)
"""


def test_two_runs_in_one_script(
    mpirun: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    done = mpirun(2, script, cwd=tmp_path, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    name = "runs/tests.models-TinyNet-shapes"
    assert done.stdout.count(f"finished {name} 4") == 2
    assert done.stdout.count(f"finished {name}-2 4") == 2
