"""Errors that are reported to the user, and exit codes."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable

INTERRUPTED = 130

_SHORTENED = reprlib.Repr()
_SHORTENED.maxstring = _SHORTENED.maxother = 100


def shown(value: object) -> str:
    """Shorten a value from a file for a message; `repr` fails for integers of 4,300 digits."""
    try:
        return _SHORTENED.repr(value)
    except ValueError:
        return f"a huge {type(value).__name__}"


class ClusterError(Exception):
    """An error message for the user, with a hint how to fix it."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)


def exit_code_of(command: Callable[[], None]) -> int:
    """Run a command and return its exit code; print errors that the user can fix."""
    try:
        command()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # such as a full disk or a read-only file system
        print(f"error: {error}", file=sys.stderr)
        return ClusterError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
