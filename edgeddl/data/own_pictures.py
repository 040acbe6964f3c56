"""The data sets folder:PATH, pack:PATH and package.module:callable."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl import registry
from edgeddl.data.images import Images, ImageSet
from edgeddl.data.locations import default_data_dir
from edgeddl.data.pack import Pack, open_pack
from edgeddl.data.packing import PackOptions, pack_folder
from edgeddl.data.source import Request, Source
from edgeddl.errors import DataError
from edgeddl.log import logger


def describe_pack(request: Request) -> Source:
    """A pack, memory-mapped."""
    pack = open_pack(Path(request.location))
    request.check_size(str(pack.path), pack.train.image_shape[1:])
    return _describe(pack)


def describe_folder(request: Request) -> Source:
    """A folder of pictures, which is first packed into the cache."""
    source = Path(request.location).expanduser().resolve()
    options = PackOptions(request.image_size, request.fit, request.test_fraction)
    cache = (request.data_dir or default_data_dir()).expanduser() / "packs"
    key = hashlib.sha256(repr((str(source), options)).encode()).hexdigest()[:8]
    dest = cache / f"{source.name}-{key}"
    logger.info("packing the pictures of %s into %s", source, dest)
    return _describe(open_pack(pack_folder(source, dest, options, replace=True)))


def describe_callable(name: str, request: Request) -> Source:
    """The user's own callable, which returns training data, test data and, optionally, classes.

    Both are pairs (images, labels) of arrays, or objects with __len__ and __getitem__ that returns
    (image, label). Images are uint8 of shape (height, width, channels).
    """
    made = registry.load("dataset", name)()
    if not isinstance(made, Sequence) or len(made) not in (2, 3):
        raise DataError(
            f"dataset {name} returned {type(made).__name__}",
            hint="return (train, test) or (train, test, classes)",
        )
    train, test = (_to_image_set(name, part) for part in made[:2])
    if train.image_shape != test.image_shape:
        raise DataError(
            f"dataset {name}: training images have the shape {train.image_shape}, test images"
            f" {test.image_shape}",
            hint="all images must have the same shape",
        )
    request.check_size(name, train.image_shape[1:])
    largest = max(int(part.labels.max()) for part in (train, test))
    classes = tuple(map(str, made[2] if len(made) == 3 else range(largest + 1)))
    if largest >= len(classes):
        raise DataError(
            f"dataset {name} has a label {largest}, but {len(classes)} class names",
            hint="labels start at 0",
        )
    pixels = train.images.reshape(-1, train.image_shape[0])
    return Source(
        classes=classes,
        mean=tuple(pixels.mean(axis=0) / 255),
        std=tuple(np.maximum(pixels.std(axis=0), 1) / 255),
        train_count=len(train),
        test_count=len(test),
        load=partial(_first, train, test, False),
    )


def _describe(pack: Pack) -> Source:
    return Source(
        classes=pack.classes,
        mean=tuple(pack.mean),
        std=tuple(pack.std),
        train_count=len(pack.train),
        test_count=len(pack.test),
        load=partial(_first, pack.train, pack.test, True),
        fingerprint=pack.fingerprint,
        fit=pack.fit,
    )


def _first(
    train: ImageSet, test: ImageSet, verified: bool, train_count: int, test_count: int
) -> Images:
    return Images(train.first(train_count), test.first(test_count), verified)


def _to_image_set(name: str, part: Any) -> ImageSet:
    is_arrays = isinstance(part, tuple) and len(part) == 2 and not isinstance(part[1], tuple)
    try:
        if is_arrays:
            images, labels = part
        else:
            items = [part[index] for index in range(len(part))]
            images, labels = zip(*items, strict=True)
        pixels, numbers = np.asarray(images), np.asarray(labels)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise DataError(
            f"dataset {name}: {error}",
            hint="images of equal shape, and one label each: arrays, or pairs (image, label)",
        ) from error
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    whole = np.issubdtype(numbers.dtype, np.integer) and numbers.min(initial=0) >= 0
    if (
        pixels.dtype != np.uint8
        or pixels.ndim != 4
        or pixels.shape[3] not in (1, 3, 4)
        or not whole
        or numbers.shape != (len(pixels),)
        or not len(pixels)
    ):
        raise DataError(
            f"dataset {name}: images are {pixels.dtype} of shape {pixels.shape}, labels"
            f" {numbers.dtype} of shape {numbers.shape}",
            hint="expected uint8 (n, height, width, 1, 3 or 4 channels) and whole numbers (n)",
        )
    return ImageSet(np.ascontiguousarray(pixels), numbers.astype(np.int32))
