"""Every error edgeddl raises on purpose.

EdgeddlError                 anything a user can fix; shown without a traceback
├── ConfigError              an option, a configuration file or a combination of options is wrong
├── DataError                a data set is missing, truncated or mislabelled, or a download failed
├── KernelError              invalid arguments of a kernel; also a ValueError
├── NativeKernelsUnavailable  there is no native library for this machine
├── CommunicationError       ranks cannot work together
│   ├── RankDisagreement     ranks have different models, data or options
│   ├── CollectiveTimeout    ranks did not join a collective operation in time
│   └── NeighbourGone        a connection of the ring was lost (comm/ring.py)
├── MemoryShortage           a batch does not fit into the memory of a rank
├── CheckpointError          a checkpoint is missing, damaged or of a different model
├── DivergenceError          loss or parameters are not finite, or the loss is far too large
└── LinpackError             LINPACK failed, or its result is missing or too slow

A message states what was expected, what was found and where; the hint says how to fix it.
"""

from __future__ import annotations

import reprlib

# The exit code that shells report for a program ended by Ctrl-C.
INTERRUPTED = 130

_SHORTENED = reprlib.Repr()
_SHORTENED.maxstring = _SHORTENED.maxother = 100


def shown(value: object) -> str:
    """A value from a file, shortened for a message.

    `repr` of such a value can take minutes (tuples that contain each other), recurse too deeply, or
    fail for integers of more than 4,300 digits.
    """
    try:
        return _SHORTENED.repr(value)
    except (ValueError, RecursionError):
        return f"a huge {type(value).__name__}"


class EdgeddlError(Exception):
    """Base class of all errors that a user can fix.

    `on_all_ranks`: every rank raises the error at the same point. One rank then reports it and all
    ranks exit normally; otherwise the job is aborted.
    """

    exit_code = 2
    on_all_ranks = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class ConfigError(EdgeddlError):
    """An option, a configuration file or a combination of options is wrong."""


class DataError(EdgeddlError):
    """A data set is missing, truncated or mislabelled, or its download failed."""


class KernelError(EdgeddlError, ValueError):
    """Invalid arguments of a kernel: shapes, dtypes or labels."""


class NativeKernelsUnavailable(EdgeddlError):
    """There is no native library that this machine can use."""


class CommunicationError(EdgeddlError):
    """Ranks cannot work together."""

    exit_code = 3


class RankDisagreement(CommunicationError):
    """Ranks were started with different models, data or options."""


class CollectiveTimeout(CommunicationError):
    """Ranks did not join a collective operation in time."""

    def __init__(self, message: str, *, ranks: tuple[int, ...], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.ranks = ranks


class MemoryShortage(EdgeddlError):
    """A batch does not fit into the memory of a rank; raised on all ranks."""

    on_all_ranks = True


class CheckpointError(EdgeddlError):
    """A checkpoint is missing, damaged or of a different model."""


class DivergenceError(EdgeddlError):
    """The run has diverged (training/divergence.py); raised on all ranks."""

    on_all_ranks = True


class LinpackError(EdgeddlError):
    """LINPACK could not be run, or a host has not passed it although it is required."""
