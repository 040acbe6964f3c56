"""The file format of a checkpoint: named arrays and a JSON description, written atomically.

A checkpoint is an .npz archive (`numpy.load` opens it) with one more member, `edgeddl.json`, that
holds the format's name and version, the names of the arrays, the description (`meta`) and a SHA-256
over all of it. Nothing in it is ever unpickled. It is written to a temporary file, synced to disk
and renamed, so a reader sees either the old or the new file, even if the writer is killed.

Members are stored, not compressed: trained float32 weights look random, so compression would take
time on a board and save almost nothing. edgeddl writes no compressed members and refuses them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from edgeddl.atomic_file import replacing
from edgeddl.errors import CheckpointError

FORMAT_NAME = "edgeddl-checkpoint"
FORMAT_VERSION = 1
HEADER_MEMBER = "edgeddl.json"

Content = TypeVar("Content")


@dataclass(eq=False)
class Checkpoint:
    """What a run needs to continue: arrays by name, and a description that JSON can hold."""

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any] = field(default_factory=dict)


class MissingCheckpointError(CheckpointError):
    """There is no such file."""


class NewerFormatError(CheckpointError):
    """Written by a later edgeddl: not damaged, so an older checkpoint must not replace it."""


class _DamageError(Exception):
    """Why a file is not a complete checkpoint; becomes a CheckpointError that names the file."""


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace `path` by a checkpoint; a CheckpointError leaves it unchanged."""
    try:
        with replacing(path) as file:
            _write_archive(file, checkpoint)
    except OSError as error:
        raise write_error(path, error) from error


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; every problem with the file is a CheckpointError."""
    return _read(path, _read_archive)


def read_description(path: Path) -> dict[str, Any]:
    """Only the `meta` of a checkpoint; `read_checkpoint` also reads and verifies the arrays."""
    return _read(path, _read_meta)


def _read(path: Path, read: Callable[[zipfile.ZipFile, int], Content]) -> Content:
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            return read(archive, os.fstat(file.fileno()).st_size)
    except FileNotFoundError as error:
        raise MissingCheckpointError(f"there is no checkpoint {path}") from error
    except NewerFormatError as error:
        raise NewerFormatError(f"checkpoint {path} {error.message}", hint=error.hint) from None
    except _DamageError as error:
        raise _read_error(path, str(error)) from error
    # With damaged bytes, zipfile, json and numpy raise all kinds of errors, even MemoryError.
    except Exception as error:
        raise _read_error(path, f"{type(error).__name__}: {error}") from error


def write_error(path: Path, error: OSError) -> CheckpointError:
    """The error for a checkpoint that could not be written."""
    return CheckpointError(
        f"checkpoint {path} could not be written: {error.strerror or error}",
        hint=f"earlier ones, if any, are kept; check free space and permissions in {path.parent}",
    )


def _read_error(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {path} is damaged or cannot be read ({reason})",
        hint="give an older one as --resume PATH, or start a new run with --resume never",
    )


def _write_archive(file: BinaryIO, checkpoint: Checkpoint) -> None:
    digest = hashlib.sha256()
    names = sorted(checkpoint.arrays)
    # ZipInfo's default date, 1980, is deliberate: zipfile refuses the date of a board without a
    # clock (1970), and equal checkpoints become equal files.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            # In logical order; only one view of another memory order is copied at a time.
            array = np.asarray(checkpoint.arrays[name], order="C")
            _add_array(digest, name, array)
            with archive.open(zipfile.ZipInfo(_member(name)), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        header = _render_header(names, checkpoint.meta, digest)
        archive.writestr(zipfile.ZipInfo(HEADER_MEMBER), header)


def _render_header(names: list[str], meta: dict[str, Any], digest: hashlib._Hash) -> str:
    # Hashed as JSON will return it: the keys 1 and "1" become one when it is read.
    meta = json.loads(json.dumps(meta))
    _add_meta(digest, meta)
    header = {"format": FORMAT_NAME, "version": FORMAT_VERSION, "arrays": names, "meta": meta}
    return json.dumps({**header, "sha256": digest.hexdigest()})


def _read_meta(archive: zipfile.ZipFile, file_bytes: int) -> dict[str, Any]:
    _check_members(archive, file_bytes)
    meta: dict[str, Any] = _read_header(archive)["meta"]
    return meta


def _read_archive(archive: zipfile.ZipFile, file_bytes: int) -> Checkpoint:
    _check_members(archive, file_bytes)
    header = _read_header(archive)
    names, meta = header["arrays"], header["meta"]
    expected = {HEADER_MEMBER, *map(_member, names)}
    if differing := expected.symmetric_difference(archive.namelist()):
        raise _DamageError(f"members missing or unknown: {', '.join(sorted(differing))}")
    arrays = {name: _read_array(archive, name) for name in names}
    digest = hashlib.sha256()
    for name in sorted(names):
        _add_array(digest, name, arrays[name])
    _add_meta(digest, meta)
    if digest.hexdigest() != header["sha256"]:
        raise _DamageError("its contents do not match their SHA-256")
    return Checkpoint(arrays, meta)


def _check_members(archive: zipfile.ZipFile, file_bytes: int) -> None:
    """Ensure that no member makes a reader allocate more than the size of the file."""
    for info in archive.infolist():
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > file_bytes:
            raise _DamageError(f"member {info.filename} is compressed or larger than the file")


def _read_header(archive: zipfile.ZipFile) -> dict[str, Any]:
    if HEADER_MEMBER not in archive.namelist():
        raise _DamageError(f"member {HEADER_MEMBER} is missing: not written by edgeddl")
    header = json.loads(archive.read(HEADER_MEMBER))
    if not isinstance(header, dict) or header.get("format") != FORMAT_NAME:
        raise _DamageError(f"{HEADER_MEMBER} does not say format {FORMAT_NAME!r}")
    version = header.get("version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerFormatError(
            f"has format version {version}, this edgeddl reads up to {FORMAT_VERSION}",
            hint="update edgeddl, or resume from a checkpoint of this version",
        )
    if version != FORMAT_VERSION or not isinstance(header.get("meta"), dict):
        raise _DamageError(f"{HEADER_MEMBER} has version {version!r} or no description")
    return header


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    # Reading the whole member checks its CRC before any of it is used.
    content = io.BytesIO(archive.read(_member(name)))
    array: np.ndarray = np.lib.format.read_array(content, allow_pickle=False)
    return np.asarray(array, order="C")


def _member(name: str) -> str:
    if not name or "\0" in name:
        raise ValueError(f"an array cannot be stored under the name {name!r}")
    return f"{name}.npy"


def _add_array(digest: hashlib._Hash, name: str, array: np.ndarray) -> None:
    if array.dtype.kind not in "biufc":
        raise TypeError(f"checkpoints hold numbers, but array {name!r} is {array.dtype}")
    digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
    digest.update(array.reshape(-1).view(np.uint8).data)


def _add_meta(digest: hashlib._Hash, meta: dict[str, Any]) -> None:
    digest.update(json.dumps(meta).encode())
