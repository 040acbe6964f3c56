"""Lists the pictures of a folder of classes and divides them into training and test pictures."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeddl.data import picture
from edgeddl.errors import DataError
from edgeddl.log import logger

_HINT_LAYOUT = (
    "expected PATH/CLASS/picture.jpg, or PATH/train/CLASS/picture.jpg and PATH/test/CLASS/..."
)
_SMALL_SIDE = 64  # pictures up to this size are trained at 32 x 32 pixels, larger ones at 224 x 224
_SAMPLE = 100


@dataclass(frozen=True)
class Picture:
    """A picture file. key: its place in the source, by which pictures are ordered and divided."""

    path: Path
    key: str
    label: int


@dataclass(frozen=True)
class PictureFolder:
    """The pictures of a folder, with sorted class names.

    Pictures are in the order of a hash of their names, so that the first N show all classes.
    """

    classes: tuple[str, ...]
    train: tuple[Picture, ...]
    test: tuple[Picture, ...]


def scan(source: Path, test_fraction: float) -> PictureFolder:
    """List the pictures of source/train and source/test (or val), or of one folder of classes.

    Without a folder for tests, a hash of the file name selects `test_fraction` of the pictures.
    Other pictures therefore stay where they are if some are added or deleted. Each class has at
    least one test picture.
    """
    source = source.expanduser()
    if not source.is_dir():
        raise DataError(f"{source} is not a folder", hint=_HINT_LAYOUT)
    try:
        train, test = _split_folders(source)
        classes = _class_names(train or source, test)
        train_pictures = _pictures(train or source, classes)
        test_pictures = _pictures(test, classes) if test else []
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error
    if test is None:
        test_pictures, train_pictures = _divide(train_pictures, test_fraction)
    _check(source, classes, train_pictures, test_pictures)
    return PictureFolder(classes, tuple(train_pictures), tuple(test_pictures))


def default_size(pictures: Sequence[Picture]) -> tuple[int, int]:
    """32 x 32 if most of the first pictures are small, else 224 x 224."""
    sides = []
    for found in pictures[:_SAMPLE]:
        try:
            sides.append(min(picture.read_size(found.path)))
        except DataError:
            continue  # reported when it is decoded
    small = sum(side <= _SMALL_SIDE for side in sides)
    return (32, 32) if 2 * small > len(sides) else (224, 224)


def _split_folders(source: Path) -> tuple[Path | None, Path | None]:
    """The folders of training and test pictures; None if the source has none."""
    train = source / "train"
    if not train.is_dir() or not any(_subfolders(train)):  # "train" may be a class of vehicles
        return None, None
    tests = [source / name for name in ("test", "val") if (source / name).is_dir()]
    if len(tests) == 2:
        logger.info("%s has test and val: val is not used", source)
    return train, tests[0] if tests else None


def _subfolders(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        yield from (Path(e.path) for e in entries if e.is_dir() and not e.name.startswith("."))


def _class_names(train: Path, test: Path | None) -> tuple[str, ...]:
    names = sorted(folder.name for folder in _subfolders(train))
    only_test = sorted({folder.name for folder in _subfolders(test)} - set(names)) if test else []
    if only_test:
        raise DataError(
            f"class {only_test[0]!r} has test pictures in {test}, but no folder in {train}",
            hint=f"add training pictures in {train / only_test[0]}, or remove the class",
        )
    if len(names) < 2:
        found = f"only the class {names[0]!r}" if names else "no folders of classes"
        raise DataError(f"{train} has {found}; training needs two or more", hint=_HINT_LAYOUT)
    return tuple(names)


def _pictures(folder: Path, classes: Sequence[str]) -> list[Picture]:
    found = []
    for label, name in enumerate(classes):
        for path in _files(folder / name):
            if path.suffix.lower() in picture.SUFFIXES and not path.name.startswith("."):
                key = path.relative_to(folder).as_posix()
                found.append(Picture(path, key, label))
    return sorted(found, key=lambda item: (_hash(item.key), item.key))


def _divide(
    pictures: Sequence[Picture], test_fraction: float
) -> tuple[list[Picture], list[Picture]]:
    """Test and training pictures; `pictures` are in the order of their hashes."""
    first = {found.label: found for found in reversed(pictures)}  # of each class
    test = [
        found
        for found in pictures
        if _hash(found.key) < test_fraction * 2**64 or found is first[found.label]
    ]
    chosen = {found.key for found in test}
    return test, [found for found in pictures if found.key not in chosen]


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def _hash(key: str) -> int:
    # Names that are not UTF-8 are kept as surrogates.
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big")


def _check(
    source: Path, classes: Sequence[str], train: Sequence[Picture], test: Sequence[Picture]
) -> None:
    trained, tested = ({found.label for found in part} for part in (train, test))
    for label, name in enumerate(classes):
        if label not in trained | tested:
            raise DataError(
                f"class {name!r} in {source} has no pictures ({', '.join(picture.SUFFIXES)})",
                hint="add pictures to its folder, or delete the folder",
            )
        if label not in trained:
            raise DataError(
                f"class {name!r} in {source} has no training pictures",
                hint="add pictures, or reduce --test-fraction",
            )
    if not tested:
        raise DataError(
            f"{source} has no test pictures",
            hint="add pictures, or increase --test-fraction",
        )
    if missing := [name for label, name in enumerate(classes) if label not in tested]:
        logger.warning("no test pictures of class %s in %s", ", ".join(missing), source)
