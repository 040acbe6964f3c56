"""Files that are whole or not there, whenever their writer dies or the disk is full."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from edgeddl.errors import ConfigError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` at the end of the block, or leaves no trace."""
    temporary = temporary_beside(path)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def temporary_beside(path: Path) -> Path:
    """A new hidden name in the folder of `path`, and so on its file system."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def sync_folder(folder: Path) -> None:
    """Bring a rename to the disk, where the file system can (FAT and some network ones cannot)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def check_output_path(what: str, path: Path, *, hint: str | None = None) -> None:
    """Find out before long work whether its result, an option's or another, can be written."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ConfigError(
            f"{what} {path} cannot be written: {error.strerror or error}", hint=hint
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Put a JSON file in the place of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write((json.dumps(value, indent=1, allow_nan=False) + "\n").encode())
