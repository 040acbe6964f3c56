"""Every error edgeddl raises on purpose.

EdgeddlError                 anything a user can mend; shown without a traceback
├── ConfigError              an option, a configuration file or a combination of options
├── DataError                a data set: absent, truncated, mislabelled, a failed download
├── KernelError              arguments a kernel cannot take; a ValueError, too
├── NativeKernelsUnavailable  there is no library for this machine
├── CommunicationError       ranks cannot work together
│   ├── RankDisagreement     ranks run different models, data or options
│   ├── CollectiveTimeout    ranks did not arrive at a collective operation
│   └── NeighbourGone        a connection of the ring is lost (comm/ring)
├── MemoryShortage           a batch that does not fit into the memory of a rank
├── CheckpointError          a checkpoint: absent, damaged, of another model
├── DivergenceError          loss or parameters are not finite, or far beyond those of training
└── LinpackError             the LINPACK stage: a run that failed, output that makes no sense

A message says what was expected, what came and where; the hint says how to mend it.
"""

from __future__ import annotations

import reprlib

# What shells report for a program ended by Ctrl-C.
INTERRUPTED = 130

_SHORTENED = reprlib.Repr()
_SHORTENED.maxstring = _SHORTENED.maxother = 100


def shown(value: object) -> str:
    """A value from a file, shortened for a message.

    `repr` of such a value can take minutes (tuples that hold each other), recurse too deeply, or
    refuse integers of more than 4,300 digits.
    """
    try:
        return _SHORTENED.repr(value)
    except (ValueError, RecursionError):
        return f"a huge {type(value).__name__}"


class EdgeddlError(Exception):
    """Base of all errors a user can mend.

    `on_all_ranks` tells that every rank raises it at the same point: then one of them reports it
    and all end in good order. Without it the job is ended by force.
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
    """A data set is absent, truncated or mislabelled, or its download failed."""


class KernelError(EdgeddlError, ValueError):
    """Arguments a kernel cannot take: shapes, kinds of numbers, labels."""


class NativeKernelsUnavailable(EdgeddlError):
    """There is no library of native kernels that this machine can use."""


class CommunicationError(EdgeddlError):
    """Ranks cannot work together."""

    exit_code = 3


class RankDisagreement(CommunicationError):
    """Ranks were started with different models, data or options."""


class CollectiveTimeout(CommunicationError):
    """Ranks did not arrive at a collective operation in time."""

    def __init__(self, message: str, *, ranks: tuple[int, ...], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.ranks = ranks


class MemoryShortage(EdgeddlError):
    """A batch does not fit into the memory of a rank; all ranks find it out together."""

    on_all_ranks = True


class CheckpointError(EdgeddlError):
    """A checkpoint is absent, damaged or of another model."""


class DivergenceError(EdgeddlError):
    """The run has diverged (training/divergence.py); all ranks find it out together."""

    on_all_ranks = True


class LinpackError(EdgeddlError):
    """The LINPACK stage could not be run, or has not been passed where it is required."""
