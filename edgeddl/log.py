"""Log lines with the rank that wrote them: "[rank 2/4 pi-03] warning: ...".

Rank 0 logs at level INFO, the other ranks at WARNING, so that messages of all ranks appear once.
Lines go to stderr through tqdm, so that they do not break a progress bar. During a run each rank
also logs to its own file, with time stamps and at level INFO.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from edgeddl.errors import EdgeddlError
from edgeddl.line_file import LineFile

logger = logging.getLogger("edgeddl")

# A context variable, because ranks may be threads of one process.
_rank_context = contextvars.ContextVar("edgeddl_rank", default=(0, 1, ""))


def set_rank(rank: int, size: int, host: str) -> None:
    """Log as this rank, in this thread and in threads it starts with `start_thread`."""
    _rank_context.set((rank, size, host))


def rank_prefix() -> str:
    """The rank of this thread, e.g. "[rank 2/4 pi-03] "; empty if there is only one rank."""
    rank, size, host = _rank_context.get()
    return f"[rank {rank}/{size} {host}] " if size > 1 else ""


def start_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread that logs as the rank of the calling thread."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: context.run(target), name=name, daemon=True)
    thread.start()
    return thread


def configure() -> None:
    """Send log lines to stderr; called by programs, not by the library."""
    handler = _TqdmHandler()
    handler.addFilter(_is_shown)
    handler.setFormatter(_RankFormatter())
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def print_text(text: str) -> None:
    """Print to stdout; a closed terminal or pipe is not an error."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until exit


@contextlib.contextmanager
def recording(path: Path) -> Iterator[LineFile]:
    """Also append this rank's log lines, and the error that ends the block, to a file."""
    handler = _FileHandler(path, rank=_rank_context.get()[0])
    logger.addHandler(handler)
    try:
        yield handler.file
    except BaseException as error:
        handler.file.append(_describe(error))
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


def _describe(error: BaseException) -> str:
    if isinstance(error, EdgeddlError):
        return f"ended with an error: {error}"
    return "ended with an exception:\n" + "".join(traceback.format_exception(error)).rstrip()


class TolerantStream:
    """A stream that ignores write errors, such as a closed terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def redirect(stream: TolerantStream) -> None:
    """Send log lines of this process to another stream instead of stderr."""
    for handler in logger.handlers:
        if isinstance(handler, _TqdmHandler):
            handler.stream = stream


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or _rank_context.get()[0] == 0


class _RankFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return f"{rank_prefix()}{level}{super().format(record)}"


class _DatedFormatter(_RankFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{self.formatTime(record)} {super().format(record)}"


class _FileHandler(logging.Handler):
    """The log file of one rank; other ranks may be threads of the same process."""

    def __init__(self, path: Path, *, rank: int) -> None:
        super().__init__(logging.INFO)
        self.file = LineFile(path, self._warn)
        self.addFilter(lambda record: _rank_context.get()[0] == rank)
        self.setFormatter(_DatedFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.file.append(self.format(record))

    def close(self) -> None:
        self.file.close()
        super().close()

    def _warn(self, error: OSError) -> None:
        logger.warning("cannot write the log %s: %s", self.file.path, error.strerror or error)


class _TqdmHandler(logging.Handler):
    stream: TolerantStream | None = None  # None: the current sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        stream = self.stream or TolerantStream(sys.stderr)
        tqdm.write(self.format(record), file=stream)
        stream.flush()
