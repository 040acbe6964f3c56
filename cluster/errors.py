"""What can go wrong with a cluster, in words for its user."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable

INTERRUPTED = 130

_SHORTENED = reprlib.Repr()
_SHORTENED.maxstring = _SHORTENED.maxother = 100


def shown(value: object) -> str:
    """A value from a file, shortened for a message; `repr` refuses integers of 4,300 digits."""
    try:
        return _SHORTENED.repr(value)
    except ValueError:
        return f"a huge {type(value).__name__}"


class ClusterError(Exception):
    """A message for the user: what, where, and a hint how to mend it."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)


def exit_code_of(command: Callable[[], None]) -> int:
    """Run a command; what is the user's to mend is said in words."""
    try:
        command()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # such as a full disk, or a file system that may not be written to
        print(f"error: {error}", file=sys.stderr)
        return ClusterError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
