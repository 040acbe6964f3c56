"""The driver's end of a pipe: starts a worker on given cores and sends it requests."""

from __future__ import annotations

import os
import pickle
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from edgeddl import machine

SCRIPTS = Path(__file__).resolve().parent.parent


class WorkerFailed(Exception):
    """A worker raised an exception or died; the message contains the end of its output."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} failed: {reason}")
        self.name = name


class Worker:
    """A worker process. It computes only during a request, while the driver sleeps."""

    def __init__(
        self,
        name: str,
        python: Path,
        module: str,
        arguments: Sequence[str] = (),
        *,
        threads: int,
    ) -> None:
        self.name = name
        cores = sorted(os.sched_getaffinity(0))[:threads]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            [str(python), "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ
            | {"PYTHONPATH": str(SCRIPTS)}
            | {variable: str(threads) for variable in machine.THREAD_VARIABLES},
            # set before the worker starts threads, which inherit it
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    def request(self, name: str, **arguments: Any) -> Any:
        """Send a request, sleep until the reply arrives, and return it."""
        assert self._process.stdin and self._process.stdout
        try:
            pickle.dump((name, arguments), self._process.stdin)
            self._process.stdin.flush()
            succeeded, reply = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError):
            code = self._process.wait()
            lines = self.stderr_lines()
            raise WorkerFailed(self.name, lines[-1] if lines else f"exit code {code}") from None
        if not succeeded:
            raise WorkerFailed(self.name, reply)
        return reply

    def stderr_lines(self) -> list[str]:
        """Return the lines written to stderr so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").splitlines()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()  # closes the pipe, which ends the worker
        self._errors.close()
