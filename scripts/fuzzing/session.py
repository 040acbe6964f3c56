"""Runs the cases of a target in a separate process, which may crash or hang."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.targets import USER_ERRORS, make_target

CASE_SECONDS = 10.0
START_SECONDS = 120.0
MOST_FAILURES = 10
MOST_MEMORY = 4 * 2**30  # an input of 100 KB that takes more is a failure

ACCEPTED, REJECTED = "accepted", "rejected"


@dataclass(frozen=True)
class Failure:
    """A case that ended neither with a result nor with an error message."""

    target: str
    seed: int
    case: int
    what: str

    def __str__(self) -> str:
        data = make_input(self.target, self.seed, self.case)
        shown = repr(data) if len(data) <= 1000 else f"{data[:1000]!r}..."
        return (
            f"{self.target}, seed {self.seed}, case {self.case}: {self.what}\n"
            f"  input ({len(data):,} bytes): {shown}\n"
            f"  rerun: ./scripts/fuzz --target {self.target} --seed {self.seed} --case {self.case}"
        )


@dataclass
class Result:
    """The outcomes of a target's cases."""

    target: str
    accepted: int = 0
    rejected: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.accepted + self.rejected + len(self.failures)


def make_input(target: str, seed: int, case: int) -> bytes:
    """Generate the input of a case, independently of other cases."""
    with tempfile.TemporaryDirectory() as folder:
        return make_target(target, Path(folder)).make(_random(target, seed, case))


def run_target(
    target: str,
    seed: int,
    cases: Sequence[int],
    *,
    case_seconds: float = CASE_SECONDS,
    on_case: Callable[[], Any] = lambda: None,
) -> Result:
    """Run these cases; after a crash or a hang, continue with the next one in a new process."""
    result, begin, done = Result(target), time.monotonic(), 0
    while done < len(cases) and len(result.failures) < MOST_FAILURES:
        with _worker(target, seed, cases[done:]) as worker:
            outcomes = _outcomes(*worker, case_seconds)
            for case, outcome in zip(cases[done:], outcomes, strict=False):
                done += 1
                on_case()
                if outcome == ACCEPTED:
                    result.accepted += 1
                elif outcome == REJECTED:
                    result.rejected += 1
                else:
                    result.failures.append(Failure(target, seed, case, outcome))
                if len(result.failures) == MOST_FAILURES:
                    break
    result.seconds = time.monotonic() - begin
    return result


@contextlib.contextmanager
def _worker(
    target: str, seed: int, cases: Sequence[int]
) -> Iterator[tuple[BaseProcess, Connection]]:
    # spawned: a fork of a process with threads may hang
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        arguments = (theirs, target, seed, cases, folder)
        process = context.Process(target=_run_cases, args=arguments, daemon=True)
        process.start()
        theirs.close()
        try:
            if not ours.poll(START_SECONDS) or ours.recv() != "ready":
                raise RuntimeError(f"the process for {target} did not start")
            yield process, ours
        finally:
            process.kill()
            process.join()
            ours.close()


def _outcomes(process: BaseProcess, connection: Connection, case_seconds: float) -> Iterator[str]:
    """Yield the outcome of each case; stop after the process crashed or hung."""
    while True:
        if not connection.poll(case_seconds):
            yield f"no result within {case_seconds:g} s"
            return
        try:
            yield connection.recv()
        except EOFError:
            process.join()
            code = process.exitcode or 0
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            yield f"the process ended: {cause}"
            return


def _run_cases(
    connection: Connection, target_name: str, seed: int, cases: Sequence[int], folder: str
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    target = make_target(target_name, Path(folder))
    connection.send("ready")
    for case in cases:
        data = target.make(_random(target_name, seed, case))
        try:
            target.check(data)
            outcome = ACCEPTED
        except USER_ERRORS as error:
            outcome = REJECTED if str(error).strip() else "an error without a message"
        except (Exception, SystemExit) as error:
            outcome = f"{type(error).__name__}: {error}"[:500]
        connection.send(outcome)


def _random(target: str, seed: int, case: int) -> Random:
    return Random(f"{seed}/{target}/{case}")
