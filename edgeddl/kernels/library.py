"""Finds, loads and describes the library of native kernels for this machine's processor.

setup.py compiles one library per build (kernel_builds.py) from csrc/ into this folder.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from edgeddl import config, machine
from edgeddl.errors import NativeKernelsUnavailable
from edgeddl.kernel_builds import BUILDS, library_name

FOLDER = Path(__file__).parent
_SETUP_HINT = "install a C compiler (gcc or clang), then run scripts/setup again"


@dataclass(frozen=True)
class Library:
    """A loaded library, its build and why it was chosen."""

    build: str
    why: str
    handle: ctypes.CDLL

    def function(self, name: str) -> Any:
        """A new object for the C function edgeddl_<name>, which returns an int."""
        try:
            function: Any = self.handle[f"edgeddl_{name}"]
        except AttributeError as error:
            raise NativeKernelsUnavailable(
                f"the library of native kernels is older than this code: {error}", hint=_SETUP_HINT
            ) from error
        function.restype = ctypes.c_int
        return function

    def set_threads(self, threads: int) -> None:
        """Compute with this number of threads from now on: at least 1, at most 256."""
        self.handle.edgeddl_set_threads(min(max(threads, 1), 256))

    def threads(self) -> int:
        """The number of threads that compute."""
        return self.handle.edgeddl_get_threads()

    def measure_peak(self, threads: int) -> float:
        """GFLOPS of multiply-adds in registers with this many threads: an upper bound."""
        peak = self.handle.edgeddl_measure_peak
        peak.argtypes, peak.restype = [ctypes.c_int], ctypes.c_double
        return peak(threads)

    def describe(self) -> dict[str, str]:
        """The build, why it was chosen, threads and compiler."""
        compiler = self.handle.edgeddl_compiler
        compiler.restype = ctypes.c_char_p
        return {
            "build": self.build,
            "why": self.why,
            "threads": str(self.threads()),
            "compiler": compiler().decode(),
        }


def load() -> Library:
    """The library for this machine, loaded once per build; raises NativeKernelsUnavailable."""
    return load_build(config.kernel_build())


@cache
def load_build(build: str | None) -> Library:
    """The library of this build, or for None the best one for this machine."""
    library = find(FOLDER, platform.machine(), processor_features(), build)
    library.handle.edgeddl_keep_memory()
    library.set_threads(_default_threads())
    return library


def find(folder: Path, architecture: str, features: set[str], forced: str | None) -> Library:
    """The best library in the folder for a processor with these features, or the forced one."""
    failures = []
    for build, why in _candidates(architecture, features, forced):
        path = folder / f"{library_name(build)}.so"
        if not path.is_file():
            failures.append(f"{path.name} was not built")
            continue
        try:
            _check_complete(path)
            return Library(build, "; ".join([why, *failures]), ctypes.CDLL(str(path)))
        except OSError as error:  # damaged, or built for another architecture or system
            failures.append(f"{path.name} does not load: {error}")
    raise NativeKernelsUnavailable(
        f"no library of native kernels in {folder}: {'; '.join(failures)}", hint=_SETUP_HINT
    )


def _check_complete(path: Path) -> None:
    """Raise OSError for a truncated library: the system's loader would crash instead.

    The last part of an ELF file is its section table; the header has its position and size.
    """
    image = path.read_bytes()
    header = struct.Struct("<40xQ10xHH2x")
    if len(image) < header.size:
        raise OSError("the file is truncated")
    table, entry_bytes, entries = header.unpack_from(image)
    if len(image) < table + entry_bytes * entries:
        raise OSError("the file is truncated")


def _candidates(
    architecture: str, features: set[str], forced: str | None
) -> Iterator[tuple[str, str]]:
    """Builds that run on this processor, best first, and why."""
    if architecture not in BUILDS:
        raise NativeKernelsUnavailable(f"there are no native kernels for {architecture}")
    supported = {
        name: f"the processor has {', '.join(needs)}" if needs else "every processor runs it"
        for name, (_, needs) in BUILDS[architecture].items()
        if features.issuperset(needs)
    }
    if forced is None:
        yield from supported.items()
    elif forced in supported:
        yield forced, "EDGEDDL_CPU asks for it"
    else:
        raise NativeKernelsUnavailable(
            f"EDGEDDL_CPU={forced}: this processor ({architecture}) cannot run that build",
            hint=f"unset EDGEDDL_CPU, or set it to one of {', '.join(supported)}",
        )


def processor_features(root: Path = Path("/")) -> set[str]:
    """What /proc/cpuinfo lists: instruction sets, and "CPU part ..." on ARM."""
    cpuinfo = root / "proc/cpuinfo"
    features = set()
    for line in cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []:
        name, _, value = (word.strip() for word in line.partition(":"))
        if name in ("flags", "Features"):
            features.update(value.split())
        elif name == "CPU part":
            features.add(f"CPU part {value}")
    return features


def _default_threads() -> int:
    """The same number as BLAS if OMP_NUM_THREADS is set, else this rank's share of the cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(wanted) if wanted.isdecimal() else machine.default_threads()
