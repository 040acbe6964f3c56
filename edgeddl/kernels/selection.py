"""Which kernels compute: native code, or the reference in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeddl.errors import NativeKernelsUnavailable
from edgeddl.log import logger

if TYPE_CHECKING:
    from edgeddl.kernels.binding import NativeFunction
    from edgeddl.kernels.library import Library


@dataclass
class Selection:
    """The library in use (None: the reference), its name, and facts about it for users."""

    library: Library | None = None
    name: str = "reference"
    facts: dict[str, str] = field(default_factory=dict)
    functions: list[NativeFunction] = field(default_factory=list)

    def use(self, library: Library | None) -> None:
        """Compute with this library from now on."""
        if library is not None:
            for function in self.functions:
                function.bind(library)
        self.library = library


# Kernels read `selected.library` at every call, so tests and benchmarks can replace it.
selected = Selection()


def select(choice: str) -> None:
    """Select the kernels for one of config.KERNEL_CHOICES."""
    if choice == "reference":
        _select_reference("EDGEDDL_KERNELS asks for it")
        return
    try:
        _select_native()
    except NativeKernelsUnavailable as error:
        if choice == "native":
            raise
        logger.warning("native kernels are unavailable; falling back to NumPy (slow): %s", error)
        _select_reference(error.message)
    if choice == "chainer":
        why = selected.facts["why"]
        selected.facts["why"] = f"EDGEDDL_KERNELS asks for Chainer's functions; for the rest, {why}"
        selected.name = f"chainer, else {selected.name}"


def _select_native() -> None:
    try:
        from edgeddl.kernels.library import load
    except ImportError as error:  # a Python without ctypes
        raise NativeKernelsUnavailable(f"they cannot be loaded: {error}") from error
    library = load()
    selected.use(library)
    selected.name, selected.facts = f"native {library.build}", library.describe()


def _select_reference(why: str) -> None:
    selected.use(None)
    selected.name, selected.facts = "reference", {"build": "NumPy", "why": why}


def chosen() -> str:
    """The kernels that compute in this process, e.g. "native avx2" or "reference"."""
    return selected.name


def describe() -> dict[str, str]:
    """Facts about them: their build, why they were chosen, threads, compiler."""
    return dict(selected.facts)
