"""A file that grows by whole lines, read by others while it grows.

What is written here is of use, but no work depends on it: a disk that is full, or taken away, is
said once and costs lines, nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


class LineFile:
    """Appends lines, each by one call to the system, so that a reader finds it whole or not yet."""

    def __init__(self, path: Path, complain: Callable[[OSError], None]) -> None:
        self.path = path
        self._complain: Callable[[OSError], None] | None = complain
        self._descriptor: int | None = None
        self._torn = False  # the last line in the file has no end: its writer was killed

    def append(self, line: str) -> None:
        try:
            self._append(line)
        except OSError as error:
            complain, self._complain = self._complain, None
            if complain is not None:
                complain(error)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, line: str) -> None:
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        data = (("\n" if self._torn else "") + line + "\n").encode(errors="replace")
        self._torn = os.write(self._descriptor, data) < len(data)
        if self._torn:  # what is left does not fit: the system says why
            os.write(self._descriptor, b"\n")

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o644)
        size = os.fstat(self._descriptor).st_size
        self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
