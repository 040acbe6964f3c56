"""Reads CIFAR-10 from the official archives: binary or Python version, packed or unpacked.

Source: https://www.cs.toronto.edu/~kriz/cifar.html. Both versions have six files of 10,000 images.
An image is a label and 3072 bytes: the red, green and blue planes one after another.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeddl.data.fetch import CIFAR10_BINARY, matches
from edgeddl.data.images import Images, ImageSet, UInt8s
from edgeddl.data.locations import default_data_dir
from edgeddl.data.pickle_reader import read_pickled_dict
from edgeddl.data.source import Request, Source
from edgeddl.errors import DataError, shown

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
# Per channel over the 50,000 training images, as fractions of 255.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

# In order of preference: unpacked files first.
FOLDER_NAMES = ("cifar-10-batches-bin", "cifar-10-batches-py")
ARCHIVE_NAMES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")

# Checksums of the Python version, from torchvision (torchvision/datasets/cifar.py). For the binary
# version only the checksum of the whole archive is published.
PUBLISHED_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}

_SIZE, _CHANNELS = 32, 3
_PIXEL_BYTES = _CHANNELS * _SIZE * _SIZE
_RECORD_BYTES = 1 + _PIXEL_BYTES
# A pickle in text form needs up to six characters per byte, and it also contains file names.
_LONGEST_PICKLED_RECORD = 16 * _RECORD_BYTES
_HINT_DAMAGED = (
    "if you downloaded CIFAR-10, download it again: python -m edgeddl data fetch cifar10"
)


@dataclass(frozen=True)
class Layout:
    """Sizes of the files; tests use smaller ones than the official ones."""

    images_per_file: int = 10_000
    train_files: int = 5
    balanced: bool = True  # every class has the same number of images, in training and in test
    md5: Mapping[str, str] = field(default_factory=lambda: PUBLISHED_MD5)

    @property
    def batches(self) -> tuple[str, ...]:
        """Names of the files, without the .bin of the binary version; the last is the test set."""
        train = (f"data_batch_{number}" for number in range(1, self.train_files + 1))
        return (*train, "test_batch")

    @property
    def train_count(self) -> int:
        return self.images_per_file * self.train_files

    @property
    def test_count(self) -> int:
        return self.images_per_file


OFFICIAL = Layout()


@dataclass(frozen=True)
class _File:
    """A file in a folder or in an archive."""

    name: str
    where: str
    size: int
    read: Callable[[], bytes]


def load_cifar10(search_folders: Sequence[Path], layout: Layout = OFFICIAL) -> Images:
    """Load CIFAR-10 from the first of these paths that has it.

    A path is an official archive, an unpacked archive, or a folder that contains one of them.
    """
    path = _find(search_folders, layout)
    train, test = _allocate(layout.train_count), _allocate(layout.test_count)
    with _reporting_errors(path):
        verified = _read_batches(path, layout, train, test) or matches(path, CIFAR10_BINARY)
    return Images(train, test, verified)


def describe(request: Request) -> Source:
    request.check_size("cifar10", (_SIZE, _SIZE))

    def load(train_count: int, test_count: int) -> Images:
        train, test, verified = load_cifar10([request.data_dir or default_data_dir()])
        return Images(train.first(train_count), test.first(test_count), verified)

    return Source(CLASSES, MEAN, STD, OFFICIAL.train_count, OFFICIAL.test_count, load)


def _allocate(count: int) -> ImageSet:
    images = np.empty((count, _SIZE, _SIZE, _CHANNELS), dtype=np.uint8)
    return ImageSet(images, np.empty(count, dtype=np.int32))


def _find(search_folders: Sequence[Path], layout: Layout) -> Path:
    folders = [folder.expanduser() for folder in search_folders]
    for folder in folders:
        with _reporting_errors(folder):
            for candidate in (folder, *(folder / name for name in (*FOLDER_NAMES, *ARCHIVE_NAMES))):
                if candidate.is_file() or _list_batches(candidate, layout):
                    return candidate
    places = ", ".join(f"{folder}{'' if folder.exists() else ' (absent)'}" for folder in folders)
    raise DataError(
        f"CIFAR-10 was not found in {places};"
        f" looked for {', '.join((*FOLDER_NAMES, *ARCHIVE_NAMES))}",
        hint=f"download it: python -m edgeddl data fetch cifar10 --data-dir {folders[0]}\n"
        "        or train on generated images: --dataset shapes",
    )


def _list_batches(folder: Path, layout: Layout) -> list[Path]:
    """The batch files in a folder, of either version."""
    names = (f"{batch}{suffix}" for batch in layout.batches for suffix in (".bin", ""))
    return [folder / name for name in names if (folder / name).is_file()]


def _read_batches(path: Path, layout: Layout, train: ImageSet, test: ImageSet) -> bool:
    """Fill both sets; returns whether every file matches its published checksum."""
    missing = dict.fromkeys(layout.batches)
    verified, suffix = True, ""
    for file in _files_in_archive(path) if path.is_file() else _files_in_folder(path, layout):
        batch = file.name.removesuffix(".bin")
        if batch not in missing:
            continue
        suffix = file.name.removeprefix(batch)
        labels, planes = (_decode_binary if suffix else _decode_python)(file, layout)
        target, start = (test, 0) if batch == layout.batches[-1] else (train, _start(batch, layout))
        part = slice(start, start + layout.images_per_file)
        target.labels[part] = labels
        target.images[part] = _planes_to_pixels(planes)
        verified = verified and not suffix and batch in layout.md5
        del missing[batch]
    if not missing and layout.balanced:
        _check_balance(path, train, test)
    if missing:
        names = ", ".join(f"{batch}{suffix}" for batch in missing)
        raise DataError(f"{path} lacks {names} of CIFAR-10", hint=_HINT_DAMAGED)
    return verified


def _start(batch: str, layout: Layout) -> int:
    """Index of the first image of a training file."""
    return layout.batches.index(batch) * layout.images_per_file


def _planes_to_pixels(planes: UInt8s) -> UInt8s:
    return planes.reshape(-1, _CHANNELS, _SIZE, _SIZE).transpose(0, 2, 3, 1)


def _files_in_folder(folder: Path, layout: Layout) -> Iterator[_File]:
    for path in _list_batches(folder, layout):
        yield _File(path.name, str(path), path.stat().st_size, path.read_bytes)


def _files_in_archive(path: Path) -> Iterator[_File]:
    """The files of a tar.gz in their order: seeking back would decompress it again."""
    with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            # Skip links, which may be dangling or circular; the official archives have none.
            contents = archive.extractfile(member) if member.isreg() else None
            if contents is not None:
                where = f"{member.name} in {path}"
                yield _File(PurePosixPath(member.name).name, where, member.size, contents.read)
        while stream.read(2**20):  # gzip verifies its checksum at the end of the stream
            pass


def _decode_binary(file: _File, layout: Layout) -> tuple[UInt8s, UInt8s]:
    expected = layout.images_per_file * _RECORD_BYTES
    if file.size != expected:
        raise DataError(
            f"{file.where}: expected {expected:,} bytes, found {file.size:,}", hint=_HINT_DAMAGED
        )
    records = np.frombuffer(file.read(), dtype=np.uint8).reshape(-1, _RECORD_BYTES)
    labels = records[:, 0]
    _check_labels(file, labels)
    return labels, records[:, 1:]


def _decode_python(file: _File, layout: Layout) -> tuple[UInt8s, UInt8s]:
    most = layout.images_per_file * _LONGEST_PICKLED_RECORD
    if file.size > most:
        raise DataError(
            f"{file.where}: expected at most {most:,} bytes, found {file.size:,}",
            hint=_HINT_DAMAGED,
        )
    payload = file.read()
    _check_md5(file, payload, layout)
    contents = read_pickled_dict(payload, file.where)
    labels = _read_label_list(file, contents.get("labels"), layout)
    planes = contents.get("data")
    expected = (layout.images_per_file, _PIXEL_BYTES)
    if not isinstance(planes, np.ndarray) or planes.shape != expected:
        found = planes.shape if isinstance(planes, np.ndarray) else type(planes).__name__
        raise DataError(
            f"{file.where}: expected 'data' of shape {expected}, found {found}", hint=_HINT_DAMAGED
        )
    return labels, planes


def _check_md5(file: _File, payload: bytes, layout: Layout) -> None:
    expected = layout.md5.get(file.name)
    found = hashlib.md5(payload, usedforsecurity=False).hexdigest()
    if expected not in (None, found):
        raise DataError(
            f"{file.where} is damaged or modified: expected the published MD5 {expected},"
            f" found {found}",
            hint="delete it, then download CIFAR-10 again: python -m edgeddl data fetch cifar10",
        )


def _read_label_list(file: _File, labels: Any, layout: Layout) -> UInt8s:
    expected = layout.images_per_file
    if not isinstance(labels, list) or len(labels) != expected:
        found = f"{len(labels):,}" if isinstance(labels, list) else type(labels).__name__
        raise DataError(
            f"{file.where}: expected {expected:,} 'labels', found {found}", hint=_HINT_DAMAGED
        )
    whole = np.array([label if isinstance(label, int) else -1 for label in labels], dtype=object)
    _check_labels(file, whole)
    return whole.astype(np.uint8)


def _check_labels(file: _File, labels: npt.NDArray[Any]) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= len(CLASSES)))
    if len(wrong):
        raise DataError(
            f"{file.where}: image {wrong[0]:,} has label {shown(int(labels[wrong[0]]))}, "
            f"expected 0 to {len(CLASSES) - 1}",
            hint=_HINT_DAMAGED,
        )


def _check_balance(path: Path, *parts: ImageSet) -> None:
    """Detect files of the right size with wrong or duplicate contents."""
    for part in parts:
        counts = np.bincount(part.labels, minlength=len(CLASSES))
        expected = len(part) // len(CLASSES)
        wrong = np.flatnonzero(counts != expected)
        if len(wrong):
            raise DataError(
                f"{path} is not CIFAR-10: it has {counts[wrong[0]]:,} images of"
                f" {CLASSES[wrong[0]]}, expected {expected:,}",
                hint=_HINT_DAMAGED,
            )


@contextmanager
def _reporting_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading into a DataError with the path."""
    try:
        yield
    except PermissionError as error:
        raise DataError(f"{path}: no permission to read {error.filename}") from error
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint=_HINT_DAMAGED) from error
