"""Progress bars on the user's terminal, also under mpirun."""

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
        """The current width; the user may resize the window."""
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or DEFAULT_COLUMNS
        except (OSError, ValueError):
            return DEFAULT_COLUMNS


class ProgressBar(tqdm):
    """A bar as wide as the terminal; disabled without a terminal, for example in a log.

    With `always`, the bar is drawn on stderr even if that is not a terminal.
    """

    def __init__(self, *arguments: Any, always: bool = False, **options: Any) -> None:
        self._terminal = find_terminal()
        stream = log.TolerantStream(self._terminal.stream if self._terminal else sys.stderr)
        absent = self._terminal is None and not always
        options["disable"] = options.get("disable", False) or absent
        if not options["disable"]:
            log.redirect(stream)  # tqdm moves the bar only for lines on the same stream
        options["file"] = stream
        super().__init__(*arguments, **options)

    @property
    def format_dict(self) -> Any:
        """The values that the bar shows, with the current width of the terminal."""
        return {**super().format_dict, "ncols": self._terminal and self._terminal.columns}


def find_terminal() -> Terminal | None:
    """The terminal that shows the stderr of this process; None if it is a file or a pipe.

    mpirun connects its ranks by pipes and copies whole lines to its own stderr, so a bar that is
    redrawn within a line would not appear. Rank 0 is a child of mpirun on the same machine. It can
    therefore check whether mpirun's stderr is a terminal, and write to it. scripts/prterun, which
    reads mpirun's stderr, may be another process between the two.
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
        return 0  # not a valid process id


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
