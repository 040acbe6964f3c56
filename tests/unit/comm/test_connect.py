"""Joining the ranks mpirun has started."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from edgeddl.comm.connect import connect
from edgeddl.comm.local import SingleCommunicator
from edgeddl.machine import RANK_VARIABLES


def test_without_mpirun_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert isinstance(connect(), SingleCommunicator)


def test_one_rank_does_not_load_mpi() -> None:
    code = "import sys, edgeddl.train as t; from edgeddl.comm.connect import connect; connect();"
    code += "sys.exit('mpi4py' in sys.modules)"
    environment = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


def test_anothers_mpirun_is_noticed() -> None:
    """The system's mpirun with the environment's MPI starts N jobs of one rank."""
    environment = os.environ | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}
    code = "import sys; from edgeddl.train import main; sys.exit(main(['--dataset', 'shapes']))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "mpirun started 4 ranks, but this one sees 1" in done.stderr
    assert "Traceback" not in done.stderr
