"""The driver's end of a pipe: starts a worker on given cores and asks it questions."""

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
    """A worker raised an exception or died; the message ends with its last words."""

    def __init__(self, name: str, last_words: str) -> None:
        super().__init__(f"{name} failed: {last_words}")
        self.name = name


class Worker:
    """A worker process. It computes only while it is asked, its asker only while it is not."""

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
            # before the worker starts threads: each of them inherits it
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    def ask(self, question: str, **arguments: Any) -> Any:
        """The worker's answer; the driver sleeps until it is there."""
        assert self._process.stdin and self._process.stdout
        try:
            pickle.dump((question, arguments), self._process.stdin)
            self._process.stdin.flush()
            fine, answer = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError):
            code = self._process.wait()
            lines = self.complaints()
            raise WorkerFailed(self.name, lines[-1] if lines else f"exit code {code}") from None
        if not fine:
            raise WorkerFailed(self.name, answer)
        return answer

    def complaints(self) -> list[str]:
        """The lines it has written to stderr so far."""
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
