"""Small files of /proc and /sys, any of which may be absent, unreadable or without a number."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def read_text(path: Path) -> str | None:
    """What a file says, without the line's end.

    Sensors that are off answer with an error (EINVAL, ENODATA, EIO) instead of a text.
    """
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """The whole number in a file."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def first_number(paths: Iterable[Path]) -> int | None:
    """The number in the first of these files that has one."""
    numbers = (read_number(path) for path in paths)
    return next((number for number in numbers if number is not None), None)


def find_hwmon(root: Path, names: Iterable[str]) -> list[Path]:
    """Folders of the monitoring chips with one of these names, in the order of the names."""
    folders = sorted((root / "sys/class/hwmon").glob("hwmon*"))
    named = [(read_text(folder / "name"), folder) for folder in folders]
    return [folder for wanted in names for name, folder in named if name == wanted]
