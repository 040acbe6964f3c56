"""Identifies BLAS libraries. An untuned one is the usual reason for a slow machine.

Debian installs each BLAS in its own folder, and its alternatives system selects one for all
programs. LD_LIBRARY_PATH selects one for a single program, without root.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

REFERENCE = "reference"
PACKAGES = "libopenblas0-pthread libblis4-pthread"
# Part of the name of a file or folder, and the BLAS it belongs to; the first match counts.
NAMES = (
    ("openblas", "openblas"),
    ("blis", "blis"),
    ("mkl", "mkl"),
    ("atlas", "atlas"),
    ("blas", REFERENCE),
)


@dataclass(frozen=True)
class Blas:
    """A BLAS library; `folder` is for LD_LIBRARY_PATH."""

    name: str
    folder: Path


def name_of(path: str) -> str | None:
    """The BLAS that a file belongs to; None for other files."""
    return next((name for part, name in NAMES if part in path.lower()), None)


def name_of_loaded(maps: Iterable[str]) -> str:
    """The BLAS that a process uses, according to /proc/PID/maps.

    If none is loaded, NumPy was built with its own untuned C routines.
    """
    files = (line.split(maxsplit=5)[-1] for line in maps if ".so" in line)
    names = {name_of(Path(file).name) or _in_blas_folder(file) for file in files} - {None}
    return next((name for _, name in NAMES if name in names), REFERENCE)


def _in_blas_folder(file: str) -> str | None:
    return name_of(Path(file).parent.name) if Path(file).name.startswith("liblapack") else None


def find_blas(root: Path = Path("/")) -> list[Blas]:
    """All BLAS libraries installed by Debian packages."""
    libraries = root.glob(f"usr/lib/{platform.machine()}-linux-gnu/*/libblas.so.3")
    found = [(name_of(path.parent.name), path.parent) for path in sorted(libraries)]
    return [Blas(name, folder) for name, folder in found if name]
