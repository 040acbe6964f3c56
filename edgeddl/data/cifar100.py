"""Reads CIFAR-100 from the official archive of its Python version, without executing its pickles.

Source: https://www.cs.toronto.edu/~kriz/cifar.html. The classes are the 100 fine ones.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from edgeddl.data.download import Archive
from edgeddl.data.fetch import fetch, matches
from edgeddl.data.images import Images, ImageSet
from edgeddl.data.locations import default_data_dir
from edgeddl.data.pickle_reader import read_pickled_dict
from edgeddl.data.source import Request, Source
from edgeddl.errors import DataError

# The MD5 is from torchvision (torchvision/datasets/cifar.py).
ARCHIVE = Archive(
    name="cifar-100-python.tar.gz",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    size=169_001_437,
    md5="eb9058c3a382ffc7106e4002c42a8d85",
)
# Per channel over the 50,000 training images, as fractions of 255.
MEAN = (0.5071, 0.4865, 0.4409)
STD = (0.2673, 0.2564, 0.2762)

_SIZE, _CHANNELS = 32, 3
_MEMBERS = ("train", "test", "meta")
_HINT = "download it: edgeddl data fetch cifar100"


def describe(request: Request) -> Source:
    request.check_size("cifar100", (_SIZE, _SIZE))
    train, test, classes = load_cifar100((request.data_dir or default_data_dir()).expanduser())

    def load(train_count: int, test_count: int) -> Images:
        return Images(train.first(train_count), test.first(test_count), verified=True)

    return Source(classes, MEAN, STD, len(train), len(test), load)


def fetch_cifar100(data_dir: Path | None) -> None:
    fetch(ARCHIVE, (data_dir or default_data_dir()).expanduser())


def load_cifar100(
    folder: Path, archive: Archive = ARCHIVE
) -> tuple[ImageSet, ImageSet, tuple[str, ...]]:
    """Training images, test images and class names; the archive must match its checksum."""
    path = folder / archive.name
    if not path.is_file():
        raise DataError(f"CIFAR-100 was not found: there is no {path}", hint=_HINT)
    try:
        if not matches(path, archive):
            raise DataError(f"{path} does not match its published checksum", hint=_HINT)
        found = _read_members(path)
        names = [_text(name) for name in found["meta"]["fine_label_names"]]
        parts = [_to_image_set(found[name], len(names)) for name in ("train", "test")]
    except (tarfile.TarError, zlib.error, EOFError, OSError, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint=_HINT) from error
    return parts[0], parts[1], tuple(names)


def _read_members(path: Path) -> dict[str, dict[str, Any]]:
    found = {}
    with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            contents = archive.extractfile(member) if member.isreg() else None
            if name in _MEMBERS and contents is not None:
                found[name] = read_pickled_dict(contents.read(), f"{member.name} in {path}")
    return found


def _text(name: str | bytes) -> str:
    return name.decode("latin-1") if isinstance(name, bytes) else str(name)


def _to_image_set(contents: dict[str, Any], classes: int) -> ImageSet:
    planes = np.asarray(contents["data"], np.uint8).reshape(-1, _CHANNELS, _SIZE, _SIZE)
    labels = np.array(contents["fine_labels"], np.int32)
    if labels.shape != (len(planes),) or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"labels do not fit {len(planes):,} images of {classes} classes")
    return ImageSet(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels)
