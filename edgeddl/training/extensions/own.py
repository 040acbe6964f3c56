"""The user's own extensions: `--extension package.module:callable`, and those of edgeddl.train."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from edgeddl import registry
from edgeddl.comm.agreement import together
from edgeddl.errors import ConfigError, EdgeddlError
from edgeddl.training.extensions.trackers import make_trackers
from edgeddl.training.loop import Extension
from edgeddl.training.prepared_run import PreparedRun


def find_makers(places: Sequence[str]) -> dict[str, Callable[[PreparedRun], Any]]:
    """Import the callables of --extension."""
    return {place: registry.load("extension", place) for place in places}


@contextmanager
def using_own(run: PreparedRun, given: Sequence[Extension]) -> Iterator[list[Extension]]:
    """Collective: the extensions of the options and the given ones.

    Those that are context managers are entered, so they can close files, and they see exceptions.
    """
    made = together(run.communicator, lambda: _make(run))
    with ExitStack() as stack:
        extensions = [*made, *given]
        for extension in extensions:
            if isinstance(extension, AbstractContextManager):
                stack.enter_context(extension)
        yield extensions


def _make(run: PreparedRun) -> list[Extension]:
    makers = find_makers(run.config.extension)
    return [*make_trackers(run), *(_call(place, make, run) for place, make in makers.items())]


def _call(place: str, make: Callable[[PreparedRun], Any], run: PreparedRun) -> Extension:
    try:
        extension = make(run)
    except EdgeddlError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"extension {place}: {type(error).__name__}: {error} ({frame.filename}, line"
            f" {frame.lineno})",
            hint="the callable takes one argument, the run, and returns the extension",
        ) from error
    registry.check_extension(place, extension)
    return extension
