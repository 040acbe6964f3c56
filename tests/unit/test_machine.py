"""Name, cores and threads of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgeddl import machine


def test_a_boards_name(tmp_path: Path) -> None:
    model = tmp_path / "proc/device-tree/model"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"Raspberry Pi 4 Model B Rev 1.4\0")
    assert machine.cpu_name(tmp_path) == "Raspberry Pi 4 Model B Rev 1.4"


def test_a_processors_name(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD Ryzen 7\n")
    assert machine.cpu_name(tmp_path) == "AMD Ryzen 7"


def test_the_name_of_an_unknown_machine(tmp_path: Path) -> None:
    assert machine.cpu_name(tmp_path)


@pytest.mark.parametrize(("ranks", "threads"), [("1", 8), ("2", 4), ("3", 2), ("20", 1)])
def test_threads_are_a_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, ranks: str, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", ranks)
    assert machine.default_threads() == threads


def test_nothing_imports_numpy_before_threads_are_limited() -> None:
    """BLAS reads the number of threads when NumPy is imported."""
    code = "import sys, edgeddl.train; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_limit_reaches_blas() -> None:
    code = (
        "from edgeddl import machine; machine.limit_threads(1); import numpy as np, threading, os\n"
        "a = np.ones((600, 600)); a @ a; print(len(os.listdir('/proc/self/task')))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in machine.THREAD_VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "1"
