"""Downloads data sets, resumes partial downloads and verifies the checksum."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from edgeddl.data.download import TIMEOUT_SECONDS, Archive, Download
from edgeddl.data.locations import default_data_dir
from edgeddl.errors import DataError
from edgeddl.log import logger

# https://www.cs.toronto.edu/~kriz/cifar.html publishes the MD5 c32a1d4ab5d03f1284b67883e8d87530;
# the SHA-256 is that of the same file.
CIFAR10_BINARY = Archive(
    name="cifar-10-binary.tar.gz",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    size=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
_NAMES = {"sha256": "SHA-256", "md5": "MD5"}


def fetch_cifar10(
    folder: Path | None = None, *, url: str = CIFAR10_BINARY.url, progress: bool = True
) -> Path:
    """Download the binary version of CIFAR-10 to a folder (default: the cache); returns its path.

    `url` may be a mirror; its file must have the same checksum.
    """
    target = default_data_dir() if folder is None else folder.expanduser()
    return fetch(replace(CIFAR10_BINARY, url=url), target, progress=progress)


def fetch(
    archive: Archive,
    folder: Path,
    *,
    progress: bool = True,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Path:
    """Download an archive unless a valid copy exists; returns its path."""
    path = folder / archive.name
    part = folder / f"{archive.name}.part"
    with _reporting_file_errors(path):
        if path.is_file():
            if matches(path, archive):
                logger.info("%s already exists and is valid", path)
                return path
            logger.warning("%s does not match its checksum: downloading it again", path)
        folder.mkdir(parents=True, exist_ok=True)
        with _open_exclusively(part) as file:
            if file.seek(0, os.SEEK_END) > archive.size:
                file.truncate(0)
            download = Download(archive, file, timeout_seconds=timeout_seconds)
            download.run(progress=progress)
            file.flush()
            os.fsync(file.fileno())
            _verify(part, archive)
            os.replace(part, path)
    logger.info("downloaded %s, checksum verified", path)
    return path


def matches(path: Path, archive: Archive) -> bool:
    """Whether this is the published file; reads it only if the size matches."""
    return path.stat().st_size == archive.size and _hash(path, archive) == archive.checksum


def _hash(path: Path, archive: Archive) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, archive.algorithm).hexdigest()


def _verify(part: Path, archive: Archive) -> None:
    """Delete a complete but wrong file, because it cannot be resumed."""
    found = _hash(part, archive)
    if found != archive.checksum:
        part.unlink()
        raise DataError(
            f"{archive.url} sent a wrong file: expected {_NAMES[archive.algorithm]}"
            f" {archive.checksum}, found {found}",
            hint="the file was deleted; run the same command again, or use another network",
        )


@contextmanager
def _open_exclusively(part: Path) -> Iterator[BinaryIO]:
    """Open the partial download for appending, unless another process is downloading it."""
    with part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                f"another process is downloading {part}", hint="wait until it has finished"
            ) from error
        yield file


@contextmanager
def _reporting_file_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into a DataError with the path."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error}",
            hint="free some space, or choose another folder with --data-dir, then run the same"
            " command again; the part already downloaded is kept",
        ) from error
