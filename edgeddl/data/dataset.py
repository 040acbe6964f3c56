"""Data sets in memory, loaded by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeddl import registry
from edgeddl.data import cifar10, shapes
from edgeddl.data.images import Float32s, Images, ImageSet, ImageShape
from edgeddl.data.locations import default_data_dir
from edgeddl.errors import DataError
from edgeddl.registry import DATASETS


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images.

    mean, std: per channel over the training images, as fractions of 255. They are those of the
        whole data set even if limits select a part, so that limited runs normalise the same way.
    fingerprint: hash of the images and labels in use; ranks compare it.
    verified: whether the files match published checksums or the images are generated.
    """

    name: str
    classes: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    mean: Float32s
    std: Float32s
    fingerprint: str
    verified: bool

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height and width of an image."""
        return self.train.image_shape


@dataclass(frozen=True)
class Source:
    """A data set and how to load it: `load(data_dir, train_count, test_count)`."""

    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    train_count: int
    test_count: int
    load: Callable[[Path | None, int, int], Images]


def _load_cifar10(data_dir: Path | None, train_count: int, test_count: int) -> Images:
    folder = default_data_dir() if data_dir is None else data_dir
    train, test, verified = cifar10.load_cifar10([folder])
    return Images(train.first(train_count), test.first(test_count), verified)


def _generate_shapes(data_dir: Path | None, train_count: int, test_count: int) -> Images:
    train, test = shapes.generate("train", train_count), shapes.generate("test", test_count)
    return Images(train, test, verified=True)


def describe_cifar10() -> Source:
    return Source(
        classes=cifar10.CLASSES,
        mean=cifar10.MEAN,
        std=cifar10.STD,
        train_count=cifar10.OFFICIAL.train_count,
        test_count=cifar10.OFFICIAL.test_count,
        load=_load_cifar10,
    )


def describe_shapes() -> Source:
    return Source(
        classes=shapes.CLASSES,
        mean=shapes.MEAN,
        std=shapes.STD,
        train_count=shapes.COUNTS["train"],
        test_count=shapes.COUNTS["test"],
        load=_generate_shapes,
    )


def load_dataset(
    name: str,
    *,
    data_dir: Path | None = None,
    limit_train: int | None = None,
    limit_test: int | None = None,
) -> Dataset:
    """Load a data set; limits select the first images only."""
    source = _find_source(name)
    train_count = _apply_limit(name, "--limit-train", limit_train, source.train_count)
    test_count = _apply_limit(name, "--limit-test", limit_test, source.test_count)
    train, test, verified = source.load(data_dir, train_count, test_count)
    return Dataset(
        name=name,
        classes=source.classes,
        train=train,
        test=test,
        mean=np.array(source.mean, dtype=np.float32),
        std=np.array(source.std, dtype=np.float32),
        fingerprint=compute_fingerprint(train, test),
        verified=verified,
    )


def _find_source(name: str) -> Source:
    if name not in DATASETS:
        known = ", ".join(DATASETS)
        raise DataError(f"unknown data set {name!r}", hint=f"choose one of: {known}")
    return registry.load("dataset", DATASETS[name])()


def _apply_limit(name: str, what: str, limit: int | None, available: int) -> int:
    if limit is None:
        return available
    if not 1 <= limit <= available:
        raise DataError(f"{what} must be from 1 to {available:,} for {name}, not {limit:,}")
    return limit


def compute_fingerprint(*parts: ImageSet) -> str:
    """The first 64 bits of the SHA-256 of all images and labels."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(np.ascontiguousarray(part.images).data)
        digest.update(part.labels.astype("<i4").data)
    return digest.hexdigest()[:16]
