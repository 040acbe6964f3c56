"""Pictures to classify: files, folders, names on stdin, and new files in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from edgeddl.data.picture import SUFFIXES
from edgeddl.errors import DataError

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Picture:
    """A picture, as a file or as the bytes of one; or the reason why there is none."""

    name: str
    content: Path | bytes | DataError


def find_pictures(words: Sequence[str], stdin: BinaryIO) -> Iterator[Picture]:
    """The pictures that arguments name; a folder stands for all pictures in it, - for stdin."""
    for word in words:
        if word == "-":
            yield from _named_on(stdin)
        elif os.path.isdir(word):
            yield from _pictures_in(Path(word))
        else:
            yield _file(Path(word))


def watch_folder(folder: Path) -> Iterator[Picture]:
    """Pictures that are created or replaced in a folder from now on, without end.

    A file counts once its size and time stay the same between two polls. Until then another program
    may be writing it.
    """
    reported = before = _states(folder)
    while True:
        time.sleep(POLL_SECONDS)
        now = _states(folder)
        for path in sorted(now):
            if now[path] == before.get(path) and now[path] != reported.get(path):
                yield _file(path)
        reported = {
            path: state if state == before.get(path) else reported.get(path, (0, 0))
            for path, state in now.items()
        }
        before = now


def _named_on(stdin: BinaryIO) -> Iterator[Picture]:
    """One file name per line; names need not be UTF-8."""
    for line in stdin:
        if name := line.rstrip(b"\r\n"):
            yield _file(Path(os.fsdecode(name)))


def _pictures_in(folder: Path) -> Iterator[Picture]:
    try:
        found = sorted(_with_suffix(folder.rglob("*")))
    except OSError as error:
        yield Picture(str(folder), DataError(f"{folder} cannot be listed: {error.strerror}"))
        return
    if not found:
        problem = f"folder {folder} contains no pictures"
        hint = f"give a folder with files that end in {', '.join(SUFFIXES)}"
        yield Picture(str(folder), DataError(problem, hint=hint))
    yield from map(_file, found)


def _with_suffix(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in paths if path.suffix.lower() in SUFFIXES)


def _file(path: Path) -> Picture:
    # A name that is not UTF-8 cannot be printed.
    return Picture(os.fsencode(path).decode("utf-8", "replace"), path)


def _states(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of each picture in a folder."""
    states = {}
    try:
        for path in _with_suffix(folder.iterdir()):
            try:
                found = path.stat()
            except FileNotFoundError:  # a temporary name
                continue
            if found.st_size:
                states[path] = (found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise DataError(
            f"--camera {folder} cannot be listed any more: {error.strerror}",
            hint="create the folder and start the command again",
        ) from None
    return states
