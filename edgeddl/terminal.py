"""Finds the terminal a person looks at, also through mpirun, and draws progress bars on it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from edgeddl import log
from edgeddl.machine import launched_rank

DEFAULT_COLUMNS = 100


@dataclass(frozen=True)
class Terminal:
    """The terminal behind stderr."""

    stream: TextIO

    @property
    def columns(self) -> int:
        """As it is now: a person may have resized the window."""
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or DEFAULT_COLUMNS
        except (OSError, ValueError):
            return DEFAULT_COLUMNS


class ProgressBar(tqdm):
    """A bar over the whole width of the terminal; nothing where there is none, such as in a log.

    With `always`, the bar is drawn on stderr even where that is not a terminal.
    """

    def __init__(self, *arguments: Any, always: bool = False, **options: Any) -> None:
        self._terminal = find_terminal()
        stream = log.TolerantStream(self._terminal.stream if self._terminal else sys.stderr)
        absent = self._terminal is None and not always
        options["disable"] = options.get("disable", False) or absent
        if not options["disable"]:
            log.redirect(stream)  # a log line must go where the bar is, to move it out of the way
        options["file"] = stream
        super().__init__(*arguments, **options)

    @property
    def format_dict(self) -> Any:
        """What a bar is drawn from; its width is looked up each time."""
        return {**super().format_dict, "ncols": self._terminal and self._terminal.columns}


def find_terminal() -> Terminal | None:
    """The terminal that shows what this process writes to stderr; None for a file or a pipe.

    mpirun gives its ranks pipes, and copies whole lines from them to its own stderr: a bar that
    moves within a line would not be seen. Rank 0 runs on the same machine as a child of mpirun, so
    it can see whether mpirun's stderr is a terminal, and write to it. Between the two may be one
    more process, which listens to mpirun's stderr (scripts/prterun).
    """
    if sys.stderr.isatty():
        return Terminal(sys.stderr)
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
        return Terminal(os.fdopen(descriptor, "w", encoding="utf-8"))
    os.close(descriptor)
    return None
