"""Creates packs from folders of pictures: on all cores, resumable, complete or absent.

The files grow in DEST.part. Every block of pictures ends with a record in progress.json. After an
interruption the files are truncated to that record and packing continues there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from edgeddl.atomic_file import sync_folder, write_json
from edgeddl.config import Fit
from edgeddl.data import folder as folders
from edgeddl.data.folder import Picture, PictureFolder
from edgeddl.data.images import UInt8s
from edgeddl.data.pack import (
    CHANNELS,
    SPLITS,
    images_name,
    is_pack,
    labels_name,
    open_pack,
    write_index,
)
from edgeddl.data.picture import decode
from edgeddl.errors import DataError
from edgeddl.log import logger
from edgeddl.machine import available_cores
from edgeddl.terminal import ProgressBar

BadImages = Literal["stop", "skip"]
# Pictures that are decoded between two records of progress: 19 MB at 224 x 224 pixels.
BLOCK = 128
_PROGRESS_NAME = "progress.json"


@dataclass(frozen=True)
class PackOptions:
    """How pictures become a pack. image_size: height and width; None: chosen by the pictures."""

    image_size: tuple[int, int] | None = None
    fit: Fit = "crop"
    test_fraction: float = 0.1
    bad_images: BadImages = "stop"
    channels: int = 3


@dataclass
class _Split:
    """What has been packed of one split. sums, squares: of the pixels of each channel."""

    sums: list[int]
    squares: list[int]
    consumed: int = 0
    written: int = 0


@dataclass
class _Progress:
    """What DEST.part contains. plan: hash of the pictures and the options."""

    plan: str
    image_shape: list[int]
    skipped: list[str]
    splits: dict[str, _Split]


def pack_folder(source: Path, dest: Path, options: PackOptions, *, replace: bool = False) -> Path:
    """Pack a folder of pictures, or continue; a complete pack of the same pictures is kept.

    replace: delete a pack of other pictures, or a damaged one.
    """
    if options.channels not in CHANNELS:
        raise DataError(f"a pack has 1, 3 or 4 channels, not {options.channels}")
    source, dest = source.expanduser(), dest.expanduser()
    pictures = folders.scan(source, options.test_fraction)
    plan = _hash_plan(pictures, options)
    with _reporting_file_errors(dest), _only_process(dest):
        if _holds(dest, plan, replace=replace):
            logger.info("%s already contains these pictures", dest)
            return dest
        if replace:
            shutil.rmtree(dest, ignore_errors=True)
        _check_free(dest)
        _Packer(pictures, plan, dest, options).run()
    return dest


def _holds(dest: Path, plan: str, *, replace: bool) -> bool:
    try:
        return is_pack(dest) and open_pack(dest).source == plan
    except DataError as error:
        if not replace:
            raise
        logger.warning("%s; creating it again", error.message)
        return False


def _hash_plan(pictures: PictureFolder, options: PackOptions) -> str:
    """Identifies the pictures, by name, size and time of modification, and the options."""
    # The treatment of damaged pictures may change between a failed attempt and the next one.
    wanted = {name: value for name, value in asdict(options).items() if name != "bad_images"}
    digest = hashlib.sha256(json.dumps(wanted).encode())
    for split, part in (("train", pictures.train), ("test", pictures.test)):
        for found in part:
            stat = found.path.stat()
            digest.update(repr((split, found.key, stat.st_size, stat.st_mtime_ns)).encode())
    return digest.hexdigest()[:16]


def _check_free(dest: Path) -> None:
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise DataError(
            f"{dest} already exists and contains other files, or a pack of other pictures or"
            " options",
            hint="delete it, or choose another folder",
        )


class _Packer:
    """Decodes the pictures of a folder into dest.part, then renames it to dest."""

    def __init__(
        self, pictures: PictureFolder, plan: str, dest: Path, options: PackOptions
    ) -> None:
        self._pictures = pictures
        self._dest = dest
        self._part = part_folder(dest)
        self._options = options
        self._progress = self._resume(plan) or self._start(plan)

    def run(self) -> None:
        parts = {"train": self._pictures.train, "test": self._pictures.test}
        done = sum(split.consumed for split in self._progress.splits.values())
        total = sum(map(len, parts.values()))
        with (
            ThreadPoolExecutor(available_cores(), "edgeddl-pack") as pool,
            ProgressBar(total=total, initial=done, unit="picture", desc="packing") as bar,
        ):
            for split in SPLITS:
                self._pack_split(split, parts[split], pool, bar)
        self._finish()

    def _resume(self, plan: str) -> _Progress | None:
        try:
            found = json.loads((self._part / _PROGRESS_NAME).read_bytes())
            if found["plan"] != plan:
                return None
            splits = {name: _Split(**found["splits"][name]) for name in SPLITS}
            progress = _Progress(**{**found, "splits": splits})
        except (OSError, ValueError, KeyError, TypeError):
            return None
        done = sum(split.consumed for split in splits.values())
        logger.info("continuing %s after %s pictures", self._part, f"{done:,}")
        return progress

    def _start(self, plan: str) -> _Progress:
        shutil.rmtree(self._part, ignore_errors=True)
        self._part.mkdir(parents=True)
        size = self._options.image_size or folders.default_size(self._pictures.train)
        zeros = [0] * self._options.channels
        splits = {name: _Split([*zeros], [*zeros]) for name in SPLITS}
        return _Progress(plan, [self._options.channels, *size], [], splits)

    def _pack_split(
        self, split: str, pictures: Sequence[Picture], pool: ThreadPoolExecutor, bar: ProgressBar
    ) -> None:
        state = self._progress.splits[split]
        channels, height, width = self._progress.image_shape
        read = partial(_try_decode, (height, width), self._options.fit, channels)
        with (
            _append(
                self._part / images_name(split), state.written * channels * height * width
            ) as images,
            _append(self._part / labels_name(split), state.written * 4) as labels,
        ):
            while state.consumed < len(pictures):
                block = pictures[state.consumed : state.consumed + BLOCK]
                for found, result in zip(block, pool.map(read, block), strict=True):
                    if isinstance(result, DataError):
                        self._handle_bad(result)
                    else:
                        images.write(result.data)
                        labels.write(np.array(found.label, "<i4").tobytes())
                        _count(state, result)
                    bar.update()
                state.consumed += len(block)
                for file in (images, labels):
                    file.flush()
                    os.fsync(file.fileno())
                write_json(self._part / _PROGRESS_NAME, asdict(self._progress))

    def _handle_bad(self, error: DataError) -> None:
        if self._options.bad_images == "stop":
            raise DataError(
                error.message,
                hint=f"{error.hint}, or skip such pictures with --bad-images skip; then run the"
                " same command again to continue",
            )
        logger.warning("skipped: %s", error.message)
        self._progress.skipped.append(error.message)

    def _finish(self) -> None:
        self._check_classes()
        mean, std = _statistics(self._progress.splits["train"], self._progress.image_shape)
        index = {
            "classes": list(self._pictures.classes),
            "image_shape": self._progress.image_shape,
            "mean": mean,
            "std": std,
            "fit": self._options.fit,
            "counts": {name: state.written for name, state in self._progress.splits.items()},
            "skipped": len(self._progress.skipped),
            "source": self._progress.plan,
        }
        write_index(self._part, index)
        (self._part / _PROGRESS_NAME).unlink()
        if self._dest.is_dir():
            self._dest.rmdir()  # _check_free: it is empty
        self._part.rename(self._dest)
        sync_folder(self._dest.parent)
        if skipped := len(self._progress.skipped):
            logger.warning("skipped %s damaged pictures", f"{skipped:,}")

    def _check_classes(self) -> None:
        """Damaged pictures may have been all of a class."""
        trained = set(np.fromfile(self._part / labels_name("train"), "<i4").tolist())
        for label, name in enumerate(self._pictures.classes):
            if label not in trained:
                raise DataError(
                    f"class {name!r} has no training pictures that can be read",
                    hint="replace its damaged pictures, then run the same command again",
                )
        if not self._progress.splits["test"].written:
            raise DataError(
                "there are no test pictures that can be read",
                hint="replace the damaged pictures, then run the same command again",
            )


@contextmanager
def _append(path: Path, size: int) -> Iterator[BinaryIO]:
    """Open a file behind its first `size` bytes; what follows was written after the last record."""
    with path.open("ab") as file:
        file.truncate(size)
        yield file


def part_folder(dest: Path) -> Path:
    """Where a pack grows until it is complete."""
    return dest.with_name(f"{dest.name}.part")


def _try_decode(
    size: tuple[int, int], fit: Fit, channels: int, found: Picture
) -> UInt8s | DataError:
    try:
        return decode(found.path, size, fit, channels)
    except DataError as error:
        return error


def _count(state: _Split, pixels: UInt8s) -> None:
    """Integers keep mean and deviation exact, however often packing is interrupted."""
    values = pixels.reshape(-1, pixels.shape[2]).astype(np.uint64)
    for channel, (total, square) in enumerate(
        zip(values.sum(axis=0), (values * values).sum(axis=0), strict=True)
    ):
        state.sums[channel] += int(total)
        state.squares[channel] += int(square)
    state.written += 1


def _statistics(state: _Split, image_shape: Sequence[int]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel, as fractions of 255."""
    _, height, width = image_shape
    count = state.written * height * width
    mean = [total / count for total in state.sums]
    variance = [
        max(square / count - average**2, 0)
        for square, average in zip(state.squares, mean, strict=True)
    ]
    # At least one grey level: pictures of one colour must not be divided by zero.
    return [value / 255 for value in mean], [max(value**0.5, 1.0) / 255 for value in variance]


@contextmanager
def _only_process(dest: Path) -> Iterator[None]:
    """Wait while another process, such as another rank of this host, writes the same pack."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    with dest.with_name(f".{dest.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("waiting for another process that is writing %s", dest)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
        Path(file.name).unlink(missing_ok=True)


@contextmanager
def _reporting_file_errors(dest: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{dest} cannot be written: {error}",
            hint="free some space or choose another folder, then run the same command again; the"
            " pictures already packed are kept",
        ) from error
