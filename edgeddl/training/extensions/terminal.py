"""Finds the terminal a person looks at, also through mpirun."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
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
    it can see whether mpirun's stderr is a terminal, and write to it.
    """
    if sys.stderr.isatty():
        return Terminal(sys.stderr, _columns(sys.stderr.fileno()))
    if launched_rank() is None:
        return None
    try:
        descriptor = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_NOCTTY | os.O_APPEND)
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
