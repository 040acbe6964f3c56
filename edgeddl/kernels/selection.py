"""Which implementation stands behind the entry points: native code, or NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgeddl.config import kernel_choice
from edgeddl.errors import NativeKernelsUnavailable
from edgeddl.kernels import reference
from edgeddl.log import logger


@dataclass
class Selection:
    """A module with all kernels, what to call it, and what there is to say about it.

    Entry points look the implementation up for each call: it can be replaced, as tests and
    benchmarks do.
    """

    implementation: Any
    name: str
    facts: dict[str, str]


def select(asked: str) -> Selection:
    """The implementation for one of config.KERNEL_CHOICES."""
    if asked == "reference":
        return _reference("EDGEDDL_KERNELS asks for it")
    try:
        found = _native()
    except NativeKernelsUnavailable as error:
        if asked == "native":
            raise
        logger.warning("NumPy computes, slowly, in the place of native kernels: %s", error)
        found = _reference(error.message)
    if asked == "chainer":
        why = f"EDGEDDL_KERNELS asks for Chainer's functions; for the rest, {found.facts['why']}"
        name = f"chainer, else {found.name}"
        return Selection(found.implementation, name, found.facts | {"why": why})
    return found


def _native() -> Selection:
    try:
        from edgeddl.kernels import native

        facts = native.describe()
    except ImportError as error:  # a Python that was built without ctypes
        raise NativeKernelsUnavailable(f"they cannot be loaded: {error}") from error
    return Selection(native, f"native {facts['build']}", facts)


def _reference(why: str) -> Selection:
    return Selection(reference, "reference", {"build": "NumPy", "why": why})


selected = select(kernel_choice())


def chosen() -> str:
    """Whose kernels compute in this process, e.g. "native avx2" or "reference"."""
    return selected.name


def describe() -> dict[str, str]:
    """What there is to say about them: their build, why they were chosen, ..."""
    return dict(selected.facts)
