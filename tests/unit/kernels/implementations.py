"""Every implementation of the kernels that this machine can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from edgeddl.errors import NativeKernelsUnavailable
from edgeddl.kernel_builds import BUILD_NAMES
from edgeddl.kernels.library import Library, load_build
from edgeddl.kernels.selection import selected

T = TypeVar("T")

THREADS = (1, 3)


@dataclass(frozen=True)
class Implementation:
    """A library and its number of threads; both are None for the reference."""

    name: str
    library: Library | None = None
    threads: int | None = None

    @property
    def is_native(self) -> bool:
        return self.library is not None

    def set_threads(self, threads: int) -> None:
        assert self.library is not None
        self.library.set_threads(threads)

    def __str__(self) -> str:
        return f"{self.name}-{self.threads}" if self.is_native else self.name


@contextmanager
def using(implementation: Implementation) -> Iterator[Implementation]:
    """Within the block the kernels compute with this implementation."""
    before = selected.library
    selected.use(implementation.library)
    if implementation.threads is not None:
        implementation.set_threads(implementation.threads)
    try:
        yield implementation
    finally:
        selected.use(before)


def find_builds() -> tuple[dict[str, Library], str]:
    """The builds that load here, and why the others do not."""
    found, failures = {}, []
    for build in BUILD_NAMES:
        try:
            found[build] = load_build(build)
        except NativeKernelsUnavailable as error:
            failures.append(f"{build}: {error}")
    return found, "; ".join(failures)


def by_reference(run: Callable[..., T], *arguments: object, **options: object) -> T:
    """The result of a function that uses the reference kernels."""
    with using(REFERENCE), np.errstate(all="ignore"):
        return run(*arguments, **options)


BUILDS, FAILURES = find_builds()
REFERENCE = Implementation("reference")
NATIVE = [
    Implementation(build, library, threads)
    for build, library in BUILDS.items()
    for threads in THREADS
]
