"""A file that grows by whole lines and can be read while it grows.

Such files are logs: no work depends on them. If the disk is full or was removed, one warning is
shown and lines are lost, but the run continues.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


class LineFile:
    """Appends each line with one system call, so that readers see only whole lines."""

    def __init__(self, path: Path, on_error: Callable[[OSError], None]) -> None:
        self.path = path
        self._on_error: Callable[[OSError], None] | None = on_error
        self._descriptor: int | None = None
        self._torn = False  # the last line is incomplete, e.g. because its writer was killed

    def append(self, line: str) -> None:
        try:
            self._append(line)
        except OSError as error:
            on_error, self._on_error = self._on_error, None  # report only the first error
            if on_error is not None:
                on_error(error)

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
        if self._torn:  # the rest did not fit: this write raises the reason
            os.write(self._descriptor, b"\n")

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o644)
        size = os.fstat(self._descriptor).st_size
        self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
