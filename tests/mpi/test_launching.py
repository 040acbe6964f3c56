"""What the environment's mpirun does without any options, and how its jobs end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests import support

pytestmark = pytest.mark.mpi

IS_OURS = (Path(sys.prefix) / "setup.stamp").exists()

PLACES = """
import os
from mpi4py import MPI
places = MPI.COMM_WORLD.gather(sorted(os.sched_getaffinity(0)))
if places: print(len(places), *map(len, places))
"""

# Longer than the half second that mpirun leaves ranks by itself.
SAVES_WHEN_ASKED = """
import pathlib, signal, sys, time
from mpi4py import MPI
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
MPI.COMM_WORLD.barrier()
print("up", flush=True)
while not asked: time.sleep(0.01)
time.sleep(1.5)
pathlib.Path(sys.argv[1], f"saved-{MPI.COMM_WORLD.rank}").touch()
"""


@pytest.mark.skipif(not IS_OURS, reason="this environment was not made by scripts/setup")
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_any_number_of_ranks_starts_unbound_and_without_noise(ranks: int) -> None:
    result = support.mpirun(ranks, "-c", PLACES)
    assert (result.returncode, result.stderr) == (0, "")
    cores = len(os.sched_getaffinity(0))
    assert result.stdout.split() == [str(ranks), *[str(cores)] * ranks]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_job_has_the_time_to_save(number: signal.Signals, tmp_path: Path) -> None:
    with support.mpi_job(2, "-c", SAVES_WHEN_ASKED, tmp_path) as job:
        assert job.stdout is not None
        assert [job.stdout.readline() for _ in range(2)] == ["up\n"] * 2
        job.send_signal(number)
        assert job.wait(timeout=30) == 130
    assert {path.name for path in tmp_path.iterdir()} == {"saved-0", "saved-1"}


def test_a_job_that_takes_too_long_leaves_no_processes(tmp_path: Path) -> None:
    code = "import os, pathlib, sys; pathlib.Path(sys.argv[1], str(os.getsid(0))).touch()"
    with pytest.raises(pytest.fail.Exception, match="not ended after 2 s"):
        support.mpirun(2, "-c", f"{code}; import time; time.sleep(60)", tmp_path, timeout=2)
    (session,) = (int(path.name) for path in tmp_path.iterdir())
    assert support.running_processes(session) == []
