"""The sentinel prints its message only if the kernel counted an OOM kill of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import sys
from pathlib import Path
from edgeddl import oom_sentinel
oom_sentinel.watch("out of memory", "died\\n", Path(sys.argv[1]))
print("ready", flush=True)
if sys.stdin.readline() == "end\\n":
    oom_sentinel.dismiss()
"""


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    path = tmp_path / "vmstat"
    path.write_text("pgfault 5\noom_kill 3\nthp 1\n")
    return path


def end_rank(counter: Path, kills: int, how: signal.Signals | None, *, group: bool = False) -> str:
    """The stderr of a rank and its sentinel."""
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK, str(counter)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert rank.stdout is not None
    assert rank.stdout.readline() == "ready\n"
    counter.write_text(f"pgfault 5\noom_kill {kills}\nthp 1\n")
    if how is not None:
        (os.killpg if group else os.kill)(rank.pid, how)
    return rank.communicate("end\n" if how is None else None, timeout=20)[1]


def test_an_oom_kill_is_reported(counter: Path) -> None:
    assert end_rank(counter, 4, signal.SIGKILL) == "died\nout of memory\n"


def test_another_kill_is_not_reported(counter: Path) -> None:
    assert end_rank(counter, 3, signal.SIGKILL) == "died\n"


def test_a_normal_exit_is_not_reported(counter: Path) -> None:
    assert end_rank(counter, 4, None) == ""


def test_a_rank_ended_by_mpirun_is_not_reported(counter: Path) -> None:
    """mpirun signals whole process groups; only the sentinel of the killed rank reports."""
    assert end_rank(counter, 4, signal.SIGTERM, group=True) == ""


def test_ctrl_c_does_not_end_the_sentinel(counter: Path) -> None:
    rank_ignores = RANK.replace(
        "import sys\n", "import signal, sys\nsignal.signal(2, lambda *_: 0)\n"
    )
    rank = subprocess.Popen(
        [sys.executable, "-c", rank_ignores, str(counter)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert rank.stdout is not None
    assert rank.stdout.readline() == "ready\n"
    os.killpg(rank.pid, signal.SIGINT)
    counter.write_text("oom_kill 4\n")
    rank.kill()
    assert rank.communicate(timeout=20)[1] == "died\nout of memory\n"
