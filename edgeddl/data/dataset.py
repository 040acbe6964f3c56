"""Data sets, loaded by name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgeddl import registry
from edgeddl.config import Fit
from edgeddl.data.images import Float32s, ImageSet, ImageShape
from edgeddl.data.own_pictures import describe_callable, describe_pack
from edgeddl.data.source import Request, Source
from edgeddl.errors import DataError
from edgeddl.registry import DATASET_PREFIXES, DATASETS


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images.

    mean, std: per channel over the training images, as fractions of 255. They are those of the
        whole data set even if limits select a part, so that limited runs normalise the same way.
    fingerprint: hash of the images and labels in use; ranks compare it.
    verified: whether the files match their checksums or the images are generated.
    fit: how pictures of another aspect ratio were brought to the images' size.
    """

    name: str
    classes: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    mean: Float32s
    std: Float32s
    fingerprint: str
    verified: bool
    fit: Fit = "crop"

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height and width of an image."""
        return self.train.image_shape


def load_dataset(
    name: str,
    *,
    data_dir: Path | None = None,
    limit_train: int | None = None,
    limit_test: int | None = None,
    image_size: tuple[int, int] | None = None,
    fit: Fit = "crop",
    test_fraction: float = 0.1,
) -> Dataset:
    """Load a data set; limits select the first images only.

    name: a known name, "folder:PATH", "pack:PATH", the path of a pack, or
        "package.module:callable".
    image_size: height and width, for data sets of any size.
    """
    source = _find_source(name, Request("", data_dir, image_size, fit, test_fraction))
    train_count = _apply_limit(name, "--limit-train", limit_train, source, source.train_count)
    test_count = _apply_limit(name, "--limit-test", limit_test, source, source.test_count)
    train, test, verified = source.load(train_count, test_count)
    if source.fingerprint is None:
        fingerprint = compute_fingerprint(train, test)
    else:
        parts = f"{source.fingerprint}:{train_count}:{test_count}"
        fingerprint = hashlib.sha256(parts.encode()).hexdigest()[:16]
    return Dataset(
        name=name,
        classes=source.classes,
        train=train,
        test=test,
        mean=np.array(source.mean, dtype=np.float32),
        std=np.array(source.std, dtype=np.float32),
        fingerprint=fingerprint,
        verified=verified,
        fit=source.fit,
    )


def _find_source(name: str, request: Request) -> Source:
    prefix, colon, location = name.partition(":")
    if name in DATASETS:
        return registry.load("dataset", DATASETS[name])(request)
    if colon and prefix in DATASET_PREFIXES:
        describe = registry.load("dataset", DATASET_PREFIXES[prefix])
        return describe(replace(request, location=location))
    if colon:
        return describe_callable(name, request)
    if "/" in name:
        return describe_pack(replace(request, location=name))
    known = ", ".join(DATASETS)
    raise DataError(
        f"unknown data set {name!r}",
        hint=f"choose one of: {known}, folder:PATH, pack:PATH, package.module:callable",
    )


def _apply_limit(name: str, what: str, limit: int | None, source: Source, available: int) -> int:
    if limit is None:
        return available
    if limit < 1 or (limit > available and not source.generated):
        allowed = "at least 1" if source.generated else f"from 1 to {available:,}"
        raise DataError(f"{what} must be {allowed} for {name}, not {limit:,}")
    return limit


def compute_fingerprint(*parts: ImageSet) -> str:
    """The first 64 bits of the SHA-256 of all images and labels."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(np.ascontiguousarray(part.images).data)
        digest.update(part.labels.astype("<i4").data)
    return digest.hexdigest()[:16]
