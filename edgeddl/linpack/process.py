"""Runs a program whose output is read line by line, and cleans up all its processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from edgeddl.errors import LinpackError

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
KILL_AFTER_SECONDS = 10
LAST_LINES = 12
LIBC = ctypes.CDLL(None)


@contextlib.contextmanager
def running(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    timeout_seconds: float | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program with stdout and stderr as one stream.

    The program has its own session, so that Ctrl-C reaches only this process. After the timeout it
    is ended with all its children, which also ends its output.
    """
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        preexec_fn=_end_with_parent,
    )  # fmt: skip
    timer = threading.Timer(timeout_seconds or 0, _end, [process])
    if timeout_seconds is not None:
        timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        if process.poll() is None:
            _end(process)
        assert process.stdout is not None
        process.stdout.close()


def _end_with_parent() -> None:
    """In the child: end when the parent is killed, instead of running for minutes."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[str]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=KILL_AFTER_SECONDS)
            return


def check_end(what: str, process: subprocess.Popen[str], output: Sequence[str]) -> None:
    """Raise LinpackError unless the program succeeded."""
    code = process.wait()
    if code == 0:
        return
    if code == -signal.SIGTERM or "SIGTERM" in "".join(output) or code == 128 + signal.SIGTERM:
        raise LinpackError(f"{what} was stopped: it took too long or received SIGTERM")
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL) or any(
        "signal 9" in line for line in output
    ):
        raise LinpackError(
            f"{what} was killed, most likely because memory ran out",
            hint="use a smaller --memory-fraction or --size, or set --memory-mib",
        )
    tail = "\n  ".join(line.rstrip() for line in output[-LAST_LINES:] if line.strip())
    raise LinpackError(f"{what} ended with exit code {code}:\n  {tail or '(no output)'}")
