"""Finds the terminal a person looks at, also through mpirun."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from edgeddl.machine import launched_rank

DEFAULT_COLUMNS = 100


@dataclass(frozen=True)
class Terminal:
    """The terminal behind stderr."""

    stream: TextIO
    columns: int


def find_terminal() -> Terminal | None:
    """The terminal that shows what this process writes to stderr; None for a file or a pipe.

    mpirun gives its ranks pipes, and copies whole lines from them to its own stderr: a bar that
    moves within a line would not be seen. Rank 0 runs on the same machine as a child of mpirun, so
    it can see whether mpirun's stderr is a terminal, and write to it. Between the two may be one
    more process, which listens to mpirun's stderr (scripts/prterun).
    """
    if sys.stderr.isatty():
        return Terminal(sys.stderr, _columns(sys.stderr.fileno()))
    if launched_rank() is None:
        return None
    launcher = os.getppid()
    return _terminal_of(launcher) or _terminal_of(_parent_of(launcher))


def _parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # nobody's number


def _terminal_of(process: int) -> Terminal | None:
    """The terminal behind another process's stderr."""
    try:
        descriptor = os.open(f"/proc/{process}/fd/2", os.O_WRONLY | os.O_NOCTTY | os.O_APPEND)
    except OSError:
        return None
    if os.isatty(descriptor):
        return Terminal(os.fdopen(descriptor, "w", encoding="utf-8"), _columns(descriptor))
    os.close(descriptor)
    return None


def _columns(descriptor: int) -> int:
    try:
        return os.get_terminal_size(descriptor).columns or DEFAULT_COLUMNS
    except OSError:
        return DEFAULT_COLUMNS
