"""Reads MNIST and Fashion-MNIST from their official files in the IDX format.

Sources: http://yann.lecun.com/exdb/mnist/ and https://github.com/zalandoresearch/fashion-mnist.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeddl.data.download import Archive
from edgeddl.data.fetch import fetch, matches
from edgeddl.data.images import Images, ImageSet
from edgeddl.data.locations import default_data_dir
from edgeddl.data.source import Request, Source
from edgeddl.errors import DataError

_SIZE = 28
_COUNTS = {"train": 60_000, "t10k": 10_000}


@dataclass(frozen=True)
class Edition:
    """One of the two data sets. archives: images and labels for training, then for tests."""

    name: str
    classes: tuple[str, ...]
    mean: float
    std: float
    archives: tuple[Archive, ...]


def _archives(url: str, sizes_and_md5: list[tuple[int, str]]) -> tuple[Archive, ...]:
    names = [
        f"{part}-{kind}-ubyte.gz" for part in _COUNTS for kind in ("images-idx3", "labels-idx1")
    ]
    return tuple(
        Archive(name, url + name, size, md5=md5)
        for name, (size, md5) in zip(names, sizes_and_md5, strict=True)
    )


# Checksums and mirrors: torchvision (torchvision/datasets/mnist.py). Mean and deviation: those of
# the 60,000 training images, as fractions of 255.
MNIST = Edition(
    name="mnist",
    classes=tuple("0123456789"),
    mean=0.1307,
    std=0.3081,
    archives=_archives(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        [
            (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ],
    ),
)
FASHION_MNIST = Edition(
    name="fashion-mnist",
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    mean=0.2860,
    std=0.3530,
    archives=_archives(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        [
            (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ],
    ),
)
EDITIONS = {edition.name: edition for edition in (MNIST, FASHION_MNIST)}


def describe_mnist(request: Request) -> Source:
    return _describe(MNIST, request)


def describe_fashion_mnist(request: Request) -> Source:
    return _describe(FASHION_MNIST, request)


def fetch_edition(name: str, data_dir: Path | None) -> None:
    """Download the files to a folder of their own, because both data sets use the same names."""
    for archive in EDITIONS[name].archives:
        fetch(archive, _folder(EDITIONS[name], data_dir))


def _folder(edition: Edition, data_dir: Path | None) -> Path:
    return (data_dir or default_data_dir()).expanduser() / edition.name


def _describe(edition: Edition, request: Request) -> Source:
    request.check_size(edition.name, (_SIZE, _SIZE))

    def load(train_count: int, test_count: int) -> Images:
        train, test = load_edition(edition, _folder(edition, request.data_dir))
        return Images(train.first(train_count), test.first(test_count), verified=True)

    train_count, test_count = _COUNTS.values()
    return Source(edition.classes, (edition.mean,), (edition.std,), train_count, test_count, load)


def load_edition(edition: Edition, folder: Path) -> tuple[ImageSet, ImageSet]:
    """Training and test images; every file must match its published checksum."""
    arrays = [_read(edition, archive, folder / archive.name) for archive in edition.archives]
    parts = []
    for images, labels in (arrays[:2], arrays[2:]):
        parts.append(ImageSet(images[..., None], labels.astype(np.int32)))
    return parts[0], parts[1]


def _read(edition: Edition, archive: Archive, path: Path) -> npt.NDArray[Any]:
    hint = f"download it: edgeddl data fetch {edition.name}"
    if not path.is_file():
        raise DataError(f"{path} of {edition.name} was not found", hint=hint)
    try:
        if not matches(path, archive):
            raise DataError(f"{path} does not match its published checksum", hint=hint)
        return parse_idx(gzip.decompress(path.read_bytes()))
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}", hint=hint) from error


def parse_idx(content: bytes) -> npt.NDArray[Any]:
    """An array of bytes in the IDX format: 0, 0, 8 (unsigned bytes), dimensions, sizes, data."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("not an IDX file of bytes")
    start = 4 + 4 * content[3]
    shape = tuple(int(side) for side in np.frombuffer(content[4:start], ">u4"))
    if len(shape) != content[3] or len(content) != start + math.prod(shape):
        raise ValueError(f"expected {math.prod(shape):,} bytes of data")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
