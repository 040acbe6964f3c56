"""Everything that reads input from outside, by name.

A target's `make` returns the input of a case, which follows from the random numbers alone. `check`
feeds it to the code: it may return, or raise an error that is meant for users.
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
# What a user is told without a traceback.
USER_ERRORS = (EdgeddlError, ClusterError)


class Target(Protocol):
    """Made once for many cases, with a folder for its files."""

    def make(self, random: Random) -> bytes: ...

    def check(self, data: bytes) -> None: ...


def make_target(name: str, folder: Path) -> Target:
    """The target of this name, or `package.module:callable` for tests of the fuzzer itself."""
    module, _, attribute = name.partition(":") if ":" in name else (f"{__name__}.{name}", "", "")
    factory: Callable[[Path], Target] = getattr(import_module(module), attribute or "make_target")
    return factory(folder)
