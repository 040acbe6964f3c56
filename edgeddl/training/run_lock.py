"""Locks a run folder, so that two jobs never write to the same run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeddl.errors import ConfigError


@contextmanager
def using(folder: Path | None) -> Iterator[None]:
    """Hold the lock of a run folder; the end of the process releases it. None: no folder."""
    if folder is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _lock(descriptor):
            raise _in_use(folder)
        yield
    finally:
        os.close(descriptor)


def is_in_use(folder: Path) -> bool:
    """Whether a job of this host is writing to a run folder."""
    try:
        with using(folder):
            return False
    except ConfigError:
        return True
    except OSError:  # no such folder
        return False


def check_unused(folder: Path) -> None:
    if is_in_use(folder):
        raise _in_use(folder)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return True
    return True


def _in_use(folder: Path) -> ConfigError:
    return ConfigError(
        f"another job is training in the run folder {folder}",
        hint="wait until it has ended, or start a new run in another --run-dir",
    )
