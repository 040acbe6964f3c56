"""Packs: decoded pictures in files that training maps into memory.

A pack is a folder:
  index.json        classes, image shape, mean and standard deviation, counts, checksums
  train-images.bin  uint8, (count, height, width, channels), C order; test-images.bin likewise
  train-labels.bin  int32, little-endian, (count); test-labels.bin likewise
  verified.json     size and time of modification of the files when their checksums were compared
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl.atomic_file import write_json
from edgeddl.config import Fit
from edgeddl.data.images import Float32s, ImageSet
from edgeddl.errors import DataError, shown
from edgeddl.log import logger

FORMAT, VERSION = "edgeddl pack", 1
INDEX_NAME, VERIFIED_NAME = "index.json", "verified.json"
SPLITS = ("train", "test")
CHANNELS = (1, 3, 4)
_LARGEST_INDEX_BYTES = 2**24
_HINT_AGAIN = "copy the pack again, or create it again with: edgeddl data pack"


def images_name(split: str) -> str:
    return f"{split}-images.bin"


def labels_name(split: str) -> str:
    return f"{split}-labels.bin"


FILE_NAMES = tuple(name(split) for split in SPLITS for name in (images_name, labels_name))


@dataclass(frozen=True, eq=False)
class Pack:
    """An open pack; its images are mapped into memory, so only those in use are read."""

    path: Path
    classes: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    mean: Float32s
    std: Float32s
    fit: Fit
    fingerprint: str
    source: str


def is_pack(path: Path) -> bool:
    """Whether this folder contains a pack, possibly a damaged one."""
    return (path / INDEX_NAME).is_file()


def write_index(folder: Path, index: dict[str, Any]) -> None:
    """Write index.json, with checksums of all files and of itself."""
    files = {name: _describe(folder / name) for name in FILE_NAMES}
    index = {"format": FORMAT, "version": VERSION, **index, "files": files}
    write_json(folder / INDEX_NAME, {**index, "sha256": _hash_index(index)})
    _remember(folder)


def open_pack(path: Path, *, verify: bool = False) -> Pack:
    """Open a pack; raises DataError if it was truncated or altered.

    Checksums are compared if `verify`, or if a file has changed since they were last compared.
    """
    path = path.expanduser()
    index = _read_index(path)
    try:
        pack = _open(path, index)
    except (KeyError, TypeError, ValueError) as error:
        raise _refuse(path / INDEX_NAME, f"is not an index of a pack: {error}") from error
    except OSError as error:
        raise _refuse(path, f"cannot be read: {error}") from error
    if verify or not _is_remembered(path):
        _verify(path, index["files"])
    return pack


def _open(path: Path, index: dict[str, Any]) -> Pack:
    channels, height, width = (int(number) for number in index["image_shape"])
    classes = tuple(str(name) for name in index["classes"])
    if channels not in CHANNELS or min(height, width) < 1 or len(classes) < 2:
        raise ValueError(f"images of shape {channels, height, width}, {len(classes)} classes")
    parts = {}
    for split in SPLITS:
        count = int(index["counts"][split])
        shape = (count, height, width, channels)
        _check_size(path / images_name(split), count * height * width * channels)
        _check_size(path / labels_name(split), 4 * count)
        images = np.memmap(path / images_name(split), np.uint8, "r", shape=shape)
        labels = np.fromfile(path / labels_name(split), "<i4").astype(np.int32)
        if labels.min() < 0 or labels.max() >= len(classes):
            raise _refuse(path / labels_name(split), f"has labels outside 0..{len(classes) - 1}")
        parts[split] = ImageSet(images, labels)
    return Pack(
        path=path,
        classes=classes,
        **parts,
        mean=_per_channel(index["mean"], channels),
        std=_per_channel(index["std"], channels),
        fit="pad" if index["fit"] == "pad" else "crop",
        fingerprint=_hash_contents(index),
        source=str(index["source"]),
    )


def _per_channel(values: Any, channels: int) -> Float32s:
    numbers = np.array(values, dtype=np.float32)
    if numbers.shape != (channels,) or not np.isfinite(numbers).all():
        raise ValueError(f"expected {channels} numbers, found {shown(values)}")
    return numbers


def _read_index(path: Path) -> dict[str, Any]:
    file = path / INDEX_NAME
    if not file.is_file():
        raise DataError(
            f"{path} is not a pack: it has no {INDEX_NAME}",
            hint="create one with: edgeddl data pack SOURCE DEST",
        )
    try:
        if file.stat().st_size > _LARGEST_INDEX_BYTES:
            raise ValueError(f"it is larger than {_LARGEST_INDEX_BYTES:,} bytes")
        index = json.loads(file.read_bytes())
        checksum = index.pop("sha256", None)
        known = index.get("format") == FORMAT
        version = index.get("version")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _refuse(file, f"cannot be read: {error}") from error
    if known and version != VERSION:
        raise DataError(
            f"{file} has version {shown(version)} of the format; this edgeddl reads {VERSION}",
            hint="create the pack again with: edgeddl data pack",
        )
    if not known or checksum != _hash_index(index):
        raise _refuse(file, "is damaged or was altered: its checksum does not match")
    return index


def _check_size(file: Path, expected: int) -> None:
    found = file.stat().st_size if file.is_file() else None
    if found is None:
        raise _refuse(file, "is missing")
    if found != expected:
        raise _refuse(file, f"is truncated or altered: expected {expected:,} bytes, not {found:,}")


def _verify(path: Path, files: dict[str, Any]) -> None:
    logger.info("comparing the checksums of %s", path)
    for name in FILE_NAMES:
        if _describe(path / name) != files.get(name):
            raise _refuse(path / name, "is damaged or was altered: its checksum does not match")
    _remember(path)


def _refuse(file: Path, problem: str) -> DataError:
    return DataError(f"{file} {problem}", hint=_HINT_AGAIN)


def _describe(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"bytes": file.stat().st_size, "sha256": digest}


def _hash_index(index: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def _hash_contents(index: dict[str, Any]) -> str:
    """The same for equal contents, wherever the pack was made."""
    names = ("classes", "image_shape", "mean", "std", "files")
    return _hash_index({name: index[name] for name in names})[:16]


def _stamps(path: Path) -> dict[str, list[int]]:
    stats = {name: (path / name).stat() for name in FILE_NAMES}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _remember(path: Path) -> None:
    """Hashing every file takes minutes per 10 GB on an SD card, so it is done once per copy."""
    with contextlib.suppress(OSError):  # a pack on a read-only file system is verified every time
        write_json(path / VERIFIED_NAME, _stamps(path))


def _is_remembered(path: Path) -> bool:
    try:
        return bool(json.loads((path / VERIFIED_NAME).read_bytes()) == _stamps(path))
    except (OSError, ValueError, RecursionError):
        return False
