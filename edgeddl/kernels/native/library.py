"""Finds, loads and describes the shared library of kernels that fits this machine's processor.

setup.py builds one library for each kind of processor, from one source (csrc/), beside this file.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from edgeddl import config, machine
from edgeddl.errors import NativeKernelsUnavailable
from edgeddl.kernels import deferral
from edgeddl.kernels.layout import contiguous

FOLDER = Path(__file__).parent
# The builds of setup.py, best first, and what the processor must have (as /proc/cpuinfo calls it).
BUILDS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "avx512": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma"),
        "avx2": ("avx2", "fma"),
        "generic": (),
    },
    "aarch64": {
        "cortex_a72": ("CPU part 0xd08",),
        "generic": (),
    },
}
_SETUP_HINT = "install a C compiler (gcc or clang), then run scripts/setup again"
_OUT_OF_MEMORY = 1  # what a kernel returns then (csrc/threads.h)


_NoBytes = ctypes.c_char * 0


# What an array becomes on its way to C keeps it alive, however late it gets there.
class _Memory:
    """An argument that is a contiguous NumPy array, or None."""

    @staticmethod
    def from_param(array: Any) -> ctypes.Array | ctypes.c_void_p | None:
        if array is None:
            return None
        try:
            return _NoBytes.from_buffer(array)  # a third of the time of ndarray.ctypes
        except TypeError:  # it is read-only, if nothing worse
            if not array.flags.c_contiguous:
                raise
            return array.ctypes.data_as(ctypes.c_void_p)


class _Vector:
    """An argument that is a NumPy array to be read, or None; copied if it is not contiguous."""

    @staticmethod
    def from_param(array: Any) -> ctypes.Array | ctypes.c_void_p | None:
        try:
            return _NoBytes.from_buffer(array)
        except TypeError:  # it is None, read-only or has gaps
            return _Memory.from_param(None if array is None else contiguous(array))


class _Result:
    """An argument that is a contiguous NumPy array to be written: no Python need look at it."""

    from_param = _NoBytes.from_buffer


_TYPES: dict[str, Any] = {
    "p": _Memory,
    "v": _Vector,
    "w": _Result,
    "o": _Memory,
    "s": ctypes.c_void_p,
    "i": ctypes.c_int,
    "l": ctypes.c_long,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
    "c": ctypes.c_char,
}
_ARRAYS = "pvwo"


class DeferrableFunction:
    """A C function that writes arrays of which Python reads nothing: it may run later."""

    def __init__(self, at_once: Any, later: Any, arguments: str) -> None:
        self.at_once = at_once
        self.later = later  # takes arguments that are converted already
        self._conversions = [_TYPES[letter].from_param for letter in arguments]
        self._quick_conversions = [
            _NoBytes.from_buffer if letter in _ARRAYS else _TYPES[letter].from_param
            for letter in arguments
        ]
        self._results = [index for index, letter in enumerate(arguments) if letter in "wo"]

    def __call__(self, *arguments: Any) -> None:
        if not deferral.queue.open:
            self.at_once(*arguments)
            return
        try:  # no Python looks at an array, unless it is read-only or has gaps
            pairs = zip(self._quick_conversions, arguments, strict=True)
            converted = [None if value is None else convert(value) for convert, value in pairs]
        except TypeError:
            pairs = zip(self._conversions, arguments, strict=True)
            converted = [convert(value) for convert, value in pairs]
        new_bytes = 0
        for index in self._results:
            array = arguments[index]
            if array is not None and array.base is None:
                new_bytes += array.nbytes
        deferral.put_off(self.later, converted, new_bytes)


@dataclass(frozen=True)
class Library:
    """A loaded library: which build it is, why it was chosen, and the C functions in it."""

    build: str
    why: str
    handle: ctypes.CDLL

    def function(self, name: str, arguments: str) -> Callable[..., None]:
        """The C function edgeddl_<name>, which returns whether it had memory enough.

        `arguments` has a letter for each: p a contiguous array or None, v any array to be read or
        None, w a contiguous array to be written, o likewise or None, s a structure by reference,
        i int, l long, f float, d double, c char.
        """
        function = self.plain_function(name, arguments)
        function.errcheck = _check_memory
        return function

    def deferrable_function(self, name: str, arguments: str) -> DeferrableFunction:
        """Likewise, which may run later (see deferral.py)."""
        later = self._find(name)
        later.errcheck = _check_memory
        return DeferrableFunction(self.function(name, arguments), later, arguments)

    def plain_function(self, name: str, arguments: str) -> Any:
        """Likewise, of which the caller looks at what it returns."""
        function = self._find(name)
        function.argtypes = [_TYPES[letter] for letter in arguments]
        return function

    def _find(self, name: str) -> Any:
        try:
            function: Any = self.handle[f"edgeddl_{name}"]
        except AttributeError as error:
            raise NativeKernelsUnavailable(
                f"the library of native kernels is older than this code: {error}", hint=_SETUP_HINT
            ) from error
        function.restype = ctypes.c_int
        return function


def _check_memory(result: int, function: object, arguments: tuple[object, ...]) -> None:
    if result == _OUT_OF_MEMORY:
        raise MemoryError("no memory left for the workspace of a kernel")


@cache
def load() -> Library:
    """The library for this machine, loaded once; raises NativeKernelsUnavailable."""
    library = find(FOLDER, platform.machine(), processor_features(), config.kernel_build())
    library.handle.edgeddl_keep_memory()
    library.handle.edgeddl_set_threads(_default_threads())
    return library


def find(folder: Path, architecture: str, features: set[str], forced: str | None) -> Library:
    """The best library in the folder for a processor with these features, or the forced one."""
    failures = []
    for build, why in _candidates(architecture, features, forced):
        path = folder / f"libedgeddl_{build}.so"
        if not path.is_file():
            failures.append(f"{path.name} was not built")
            continue
        try:
            _check_whole(path)
            return Library(build, "; ".join([why, *failures]), ctypes.CDLL(str(path)))
        except OSError as error:  # damaged, or built for another architecture or system
            failures.append(f"{path.name} does not load: {error}")
    raise NativeKernelsUnavailable(
        f"no library of native kernels in {folder}: {'; '.join(failures)}", hint=_SETUP_HINT
    )


def _check_whole(path: Path) -> None:
    """Raise OSError for a library whose end is missing: the loader would not, but crash.

    The last part of an ELF file is its table of sections; the header says where that is.
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
    fitting = {
        build: f"the processor has {', '.join(needs)}" if needs else "every processor runs it"
        for build, needs in BUILDS[architecture].items()
        if features.issuperset(needs)
    }
    if forced is None:
        yield from fitting.items()
    elif forced in fitting:
        yield forced, "EDGEDDL_CPU asks for it"
    else:
        raise NativeKernelsUnavailable(
            f"EDGEDDL_CPU={forced}: this processor ({architecture}) cannot run that build",
            hint=f"unset EDGEDDL_CPU, or set it to one of {', '.join(fitting)}",
        )


def processor_features(root: Path = Path("/")) -> set[str]:
    """What /proc/cpuinfo says of the processor: instruction sets, and "CPU part ..." on ARM."""
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
    """As many as BLAS has, if it is told by OMP_NUM_THREADS; else this rank's share of cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(wanted) if wanted.isdecimal() else machine.default_threads()


def set_threads(threads: int) -> None:
    """Compute with so many threads from now on: at least 1, at most 256."""
    load().handle.edgeddl_set_threads(min(max(threads, 1), 256))


def threads() -> int:
    """How many threads compute."""
    return load().handle.edgeddl_get_threads()


def describe() -> dict[str, str]:
    """What was chosen and why, for people."""
    library = load()
    compiler = library.handle.edgeddl_compiler
    compiler.restype = ctypes.c_char_p
    return {
        "build": library.build,
        "why": library.why,
        "threads": str(threads()),
        "compiler": compiler().decode(),
    }


def measure_peak(threads: int) -> float:
    """GFLOPS of multiply-adds in registers on so many threads: no kernel can be faster."""
    peak = load().handle.edgeddl_measure_peak
    peak.argtypes, peak.restype = [ctypes.c_int], ctypes.c_double
    return peak(threads)
