"""Reads small files of /proc and /sys, which may be missing, unreadable or without a number."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def read_text(path: Path) -> str | None:
    """The stripped contents of a file; None if it cannot be read.

    Reading a disabled sensor fails with EINVAL, ENODATA or EIO.
    """
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """The integer in a file; None if there is none."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def first_number(paths: Iterable[Path]) -> int | None:
    """The integer in the first of these files that has one."""
    numbers = (read_number(path) for path in paths)
    return next((number for number in numbers if number is not None), None)


def find_hwmon(root: Path, names: Iterable[str]) -> list[Path]:
    """Folders of the hwmon chips with one of these names, in the order of the names."""
    folders = sorted((root / "sys/class/hwmon").glob("hwmon*"))
    named = [(read_text(folder / "name"), folder) for folder in folders]
    return [folder for wanted in names for name, folder in named if name == wanted]
