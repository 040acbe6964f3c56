"""Every implementation of the kernels that this machine can run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.config import KERNEL_BUILDS
from edgeddl.errors import NativeKernelsUnavailable
from edgeddl.kernels import reference
from edgeddl.kernels.selection import selected

T = TypeVar("T")

THREADS = (1, 3)


@dataclass(frozen=True)
class Implementation:
    """A module with all kernels; `threads` is None if NumPy chooses the number of threads."""

    name: str
    module: Any
    threads: int | None = None

    @property
    def is_native(self) -> bool:
        return self.threads is not None

    def set_threads(self, threads: int) -> None:
        self.module.library.set_threads(threads)

    def __str__(self) -> str:
        return f"{self.name}-{self.threads}" if self.is_native else self.name


def load_build(build: str) -> ModuleType:
    """Load the native kernels of one build: a copy of their modules, bound to its library."""
    package = "edgeddl.kernels.native"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEDDL_CPU", build)
        patch.setattr(kernels, "native", None, raising=False)
        for name in [name for name in sys.modules if name.startswith(package)]:
            patch.delitem(sys.modules, name)
        return importlib.import_module(package)


def find_builds() -> tuple[dict[str, ModuleType], str]:
    """Return the builds that load on this machine, and why the others do not."""
    found, failures = {}, []
    for build in KERNEL_BUILDS:
        try:
            found[build] = load_build(build)
        except NativeKernelsUnavailable as error:
            failures.append(f"{build}: {error}")
    return found, "; ".join(failures)


def by_reference(run: Callable[..., T], *arguments: object, **options: object) -> T:
    """Run a function with the reference implementation behind the entry points."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(selected, "implementation", reference)
        return run(*arguments, **options)


BUILDS, FAILURES = find_builds()
REFERENCE = Implementation("reference", reference)
NATIVE = [
    Implementation(build, module, threads)
    for build, module in BUILDS.items()
    for threads in THREADS
]
