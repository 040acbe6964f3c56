"""The fuzzing targets: all code that reads external input, by name.

A target's `make` generates the input of a case from random numbers only. `check` passes it to the
code, which may return or raise an error that is meant for users.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Protocol

from cluster.errors import ClusterError
from edgeddl.errors import EdgeddlError

TARGET_NAMES = ("checkpoint", "config", "inventory", "pickle", "cifar10", "hpcc", "events", "http")
# errors that are reported to the user without a traceback
USER_ERRORS = (EdgeddlError, ClusterError)


class Target(Protocol):
    """A target; created once for many cases, with a folder for its files."""

    def make(self, random: Random) -> bytes: ...

    def check(self, data: bytes) -> None: ...


def make_target(name: str, folder: Path) -> Target:
    """Return the target of this name, or `package.module:callable` (tests of the fuzzer)."""
    module, _, attribute = name.partition(":") if ":" in name else (f"{__name__}.{name}", "", "")
    factory: Callable[[Path], Target] = getattr(import_module(module), attribute or "make_target")
    return factory(folder)
