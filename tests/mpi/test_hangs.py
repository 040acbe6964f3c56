"""Start-up and shut-down that wait for something say for what, and have a time limit."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.mpi.test_train import ENVIRONMENT, SMALL, TRAIN, rank_process, running, train, wait_for
from tests.support import MPI_ENVIRONMENT, MPIRUN, mpi_job, running_processes

pytestmark = pytest.mark.mpi

STALL = ("--stall-warning-seconds", "2", "--stall-timeout-seconds", "12")


def test_a_rank_that_stops_after_the_last_collective(tmp_path: Path) -> None:
    with running(tmp_path, 3, *STALL) as job:
        wait_for(lambda: list(tmp_path.glob("runs/*/summary.json")))
        os.kill(rank_process(job, 2), signal.SIGSTOP)
        _, errors = job.communicate(timeout=40)
    assert job.returncode == 3
    # Rank 2 may have stopped before its last collective, which the watchdog sees, or after it.
    assert re.search(r"rank 2 on \S+ \((no heartbeat|did not exit)\)", errors), errors


def test_a_rank_that_stops_before_the_first_exchange(tmp_path: Path) -> None:
    with running(tmp_path, 3, *STALL) as job:
        wait_for(lambda: has_rank(job, 2))
        os.kill(rank_process(job, 2), signal.SIGSTOP)
        _, errors = job.communicate(timeout=40)
        assert not running_processes(job.pid)
    assert job.returncode == 3
    assert re.search(r"warning: waited 1\d s for rank 2 .*\(no(t started| heartbeat)\)", errors)
    assert "error: gave up after" in errors


def test_an_idle_connection_to_mpirun(tmp_path: Path) -> None:
    """It blocks Open MPI's own start-up, so only what starts mpirun can report it."""
    with mpi_job(2, *TRAIN, *SMALL, *STALL, cwd=tmp_path, env=ENVIRONMENT) as job:
        wait_for(lambda: listening_ports(job.pid))
        idle = [socket.create_connection(("127.0.0.1", p)) for p in listening_ports(job.pid)]
        _, errors = job.communicate(timeout=40)
        for one in idle:
            one.close()
    if job.returncode == 0:
        pytest.skip("the ranks were connected before the idle connection")
    assert job.returncode == 3
    assert "warning: waited 1" in errors and "an idle connection blocks it" in errors
    assert "Traceback" not in errors


def test_wrong_options_need_no_other_rank(tmp_path: Path) -> None:
    """Refused before MPI_Init, so that no other rank can delay the message."""
    began = time.monotonic()
    done = train(tmp_path, 3, "--local-steps", "4", "--compression", "fp16", *STALL)
    assert done.returncode == 2
    assert done.stderr.count("--local-steps 4 sends parameters") == 1
    assert "Traceback" not in done.stderr and time.monotonic() - began < 30


def test_heartbeats_stay_out_of_the_output_of_a_plain_prterun(tmp_path: Path) -> None:
    with mpi_job(
        2, *TRAIN, *SMALL, cwd=tmp_path, env=ENVIRONMENT | {"OMPI_PRTERUN": plain_prterun()}
    ) as job:
        output, errors = job.communicate(timeout=60)
    assert job.returncode == 0
    assert "\x1e" not in output + errors


def plain_prterun() -> str:
    show = "import os, sys; print(os.environ['OPAL_PREFIX'])"
    command = [str(MPIRUN), "-np", "1", "python3", "-c", show]
    environment = os.environ | MPI_ENVIRONMENT
    prefix = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return f"{prefix.stdout.strip()}/bin/prterun"


def has_rank(job: subprocess.Popen[str], rank: int) -> bool:
    try:
        return bool(rank_process(job, rank))
    except AssertionError:
        return False


def listening_ports(session: int) -> list[int]:
    """TCP ports at which a process of the session listens, on the loopback."""
    inodes = set()
    for process in running_processes(session):
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(os.readlink(descriptor))
            except OSError:
                continue
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return [
        int(row[1].rpartition(":")[2], 16)
        for row in rows
        if row[3] == "0A" and f"socket:[{row[9]}]" in inodes
    ]
