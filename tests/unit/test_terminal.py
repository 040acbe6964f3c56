"""Progress bars fill the width of a terminal and do not appear in logs."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support import REPOSITORY

BAR = """
import sys; sys.path.insert(0, "scripts")
from edgeddl.terminal import ProgressBar
with ProgressBar(total=2, bar_format="{n_fmt} |{bar}| [{elapsed}{postfix}]") as bar:
    bar.set_postfix_str("loss 1")
    bar.update()
"""
BENCHMARKS = {
    "bench-kernels": "from bench_kernels.progress import Progress as P; p = P(2); p.show_turn('x')",
    "bench-scaling": "from bench_scaling.progress import Progress as P; p = P(2); p.begin('x', 9)",
}


@pytest.mark.parametrize("columns", [60, 143])
def test_a_bar_fills_the_terminals_width(columns: int) -> None:
    terminal, other_end = pty.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    job = subprocess.Popen([sys.executable, "-c", BAR], cwd=REPOSITORY, stderr=other_end)
    os.close(other_end)
    assert job.wait(timeout=60) == 0
    said = os.read(terminal, 65536).decode()
    os.close(terminal)
    drawn = [line for line in said.replace("\n", "\r").split("\r") if "|" in line]
    assert drawn and {len(line) for line in drawn} == {columns}


@pytest.mark.parametrize("code", [BAR, *(BAR + code for code in BENCHMARKS.values())])
def test_no_bar_in_a_log(code: str, tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        command = [sys.executable, "-c", code + "\nif 'p' in dir(): p.close()"]
        subprocess.run(command, cwd=REPOSITORY, stderr=log, stdout=log, check=True)
    assert (tmp_path / "log").read_bytes() == b""
