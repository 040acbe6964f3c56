"""Writes events.jsonl, the log of a run for reports and other programs (`edgeddl.run_format`).

A `steps` line is written every second, or every step if steps take longer. In long runs lines
become less frequent: a day adds a few thousand.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgeddl import kernels, machine, run_format
from edgeddl.errors import EdgeddlError
from edgeddl.line_file import LineFile
from edgeddl.log import logger
from edgeddl.training.extensions.checkpointing import Checkpointing
from edgeddl.training.loop import StepReport
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.state import RunState
from edgeddl.training.telemetry import RankStep

LINE_EVERY_SECONDS = 1.0
# Later in a run, a line covers this part of the time since the start.
LINE_EVERY_PART = 1 / 2000


class RunEvents:
    """Written by rank 0. Ranks report a step in the next one, so lines lag by a step."""

    def __init__(self, path: Path, state: RunState, checkpointing: Checkpointing) -> None:
        self._file = LineFile(path, self._complain)
        self._checkpointing = checkpointing
        self._saved_step: int | None = None
        self._shares = list(state.shares)
        self._steps_seen = 0  # since this start
        self._losses: list[float] = []  # of steps that are not written yet
        self._ranks: list[list[RankStep]] = []  # by step, the reports of the ranks
        self._step, self._learning_rate = state.step, 0.0  # of the last of them
        self._started = self._last_line = time.monotonic()

    def start(self, run: PreparedRun, ranks: Sequence[tuple[str, str, int]]) -> None:
        """`ranks`: host, cpu and threads of each."""
        self._write(
            run_format.START,
            format=run_format.FORMAT,
            step=run.state.step,
            total_steps=run.total_steps,
            steps_per_epoch=run.steps_per_epoch,
            options=run.config.to_json(),
            versions=machine.versions() | {"kernels": kernels.chosen()},
            parameters=sum(slot.spec.count for slot in run.arena.plan.all_slots),
            shares=run.state.shares,
            ranks=[dict(zip(("host", "cpu", "threads"), rank, strict=True)) for rank in ranks],
        )

    def on_step(self, report: StepReport) -> None:
        if self._losses:  # the first report after a start is empty
            self._ranks.append(list(report.ranks))
        # The first steps include one-time work, so they get their own line.
        if self._is_time_for_a_line() or self._steps_seen == run_format.WARM_UP_STEPS:
            self._write_steps()
        self._steps_seen += 1
        self._losses.append(report.loss)
        self._step, self._learning_rate = report.state.step, report.learning_rate
        if report.state.shares != self._shares:
            self._shares = list(report.state.shares)
            self._write(run_format.BALANCE, step=report.state.step, shares=self._shares)

    def on_epoch(self, state: RunState) -> None:
        self._write(run_format.EPOCH, **state.history[-1])

    def on_pause(self, state: RunState, *, final: bool) -> None:
        if self._saved_step != self._checkpointing.saved_step:
            self._saved_step = self._checkpointing.saved_step
            self._write(run_format.CHECKPOINT, step=self._saved_step)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._write_steps()
        outcome = run_format.STOPPED if summary["stopped"] else run_format.FINISHED
        ranks = [
            {name: rank[name] for name in run_format.END_RANK_FIGURES} for rank in summary["ranks"]
        ]
        figures = {name: summary[name] for name in run_format.END_FIGURES}
        self._write(run_format.END, outcome=outcome, ranks=ranks, **figures)
        self._file.close()

    def fail(self, error: BaseException) -> None:
        self._write_steps()
        known = isinstance(error, EdgeddlError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        self._write(run_format.END, outcome=run_format.FAILED, error=text)
        self._file.close()

    def _is_time_for_a_line(self) -> bool:
        now = time.monotonic()
        interval = max(LINE_EVERY_SECONDS, LINE_EVERY_PART * (now - self._started))
        return now - self._last_line >= interval

    def _write_steps(self) -> None:
        """Write the steps so far; at the end this includes the last one, which has no reports."""
        if not self._losses:
            return
        self._write(
            run_format.STEPS,
            step=self._step,
            losses=[_short(loss) for loss in self._losses],
            learning_rate=self._learning_rate,
            **{run_format.REPORTED_STEPS: len(self._ranks)},
            ranks=[_sum_steps(steps) for steps in zip(*self._ranks, strict=True)],
        )
        self._losses, self._ranks = [], []
        self._last_line = time.monotonic()

    def _write(self, event: str, **content: Any) -> None:
        line = {"event": event, "time": round(time.time(), 3), **content}
        self._file.append(json.dumps(line, allow_nan=False, separators=(",", ":")))

    def _complain(self, error: OSError) -> None:
        logger.warning(
            "training continues, but its events cannot be written to %s: %s",
            self._file.path,
            error.strerror or error,
        )


def _sum_steps(steps: Sequence[RankStep]) -> dict[str, Any]:
    """A rank over several steps: sums of times and images, the last memory and sensors."""
    sums = {
        name: _short(sum(getattr(step, name) for step in steps)) for name in run_format.RANK_SUMS
    }
    return sums | {name: _short(getattr(steps[-1], name)) for name in run_format.RANK_VITALS}


def _short(value: float) -> float | int | None:
    """A number rounded to few digits; None if it is unknown."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


@contextmanager
def recording_events(
    run: PreparedRun, ranks: Sequence[tuple[str, str, int]], checkpointing: Checkpointing
) -> Iterator[RunEvents | None]:
    """Record the run in this block on rank 0, including an exception."""
    if run.folder is None:
        yield None
        return
    events = RunEvents(run.folder.events, run.state, checkpointing)
    events.start(run, ranks)
    try:
        yield events
    except BaseException as error:
        events.fail(error)
        raise
