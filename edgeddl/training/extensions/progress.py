"""Shows the progress of a run: a bar on a terminal, lines in a log file."""

from __future__ import annotations

import time
from collections import deque

from tqdm import tqdm

from edgeddl.log import logger
from edgeddl.terminal import ProgressBar, find_terminal
from edgeddl.training.loop import Extension, StepReport
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.state import RunState

LINE_EVERY_SECONDS = 10.0
# Figures are means over this many steps: large enough to be readable, small enough to show a
# change.
WINDOW_STEPS = 20


def make_progress(run: PreparedRun) -> list[Extension]:
    """On rank 0, unless --progress none."""
    if run.folder is None or run.config.progress == "none":
        return []
    return [
        Progress(
            run.config.progress,
            epochs=run.config.epochs,
            total_steps=run.total_steps,
            first_step=run.state.step,
            ranks=run.communicator.size,
        )
    ]


class Progress:
    """On rank 0: epoch and step, loss, throughput, waiting time, remaining time."""

    def __init__(
        self, kind: str, *, epochs: int, total_steps: int, first_step: int, ranks: int
    ) -> None:
        self._epochs = epochs
        self._ranks = ranks
        self._total_steps = total_steps
        self._recent: deque[StepReport] = deque(maxlen=WINDOW_STEPS)
        self._last_line = time.monotonic()
        self._lines = kind == "lines" or (kind == "auto" and find_terminal() is None)
        self._bar: ProgressBar | None = None
        if total_steps > first_step and not self._lines:
            self._bar = ProgressBar(
                always=kind == "bar",
                total=total_steps,
                initial=first_step,
                smoothing=0,  # the mean over the run, which includes evaluations
                bar_format="{desc} |{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
            )

    def on_step(self, report: StepReport) -> None:
        self._recent.append(report)
        if self._bar is not None:
            self._bar.set_description_str(self._epoch_text(report.state), refresh=False)
            self._bar.set_postfix_str(self._figures(), refresh=False)
            self._bar.update()
        elif self._lines and time.monotonic() - self._last_line >= LINE_EVERY_SECONDS:
            self._write_line(report.state)

    def on_epoch(self, state: RunState) -> None:
        entry = state.history[-1]
        accuracy = f", accuracy {entry['accuracy']:.2%}" if "accuracy" in entry else ""
        logger.info(
            "epoch %d/%d: mean loss %.4f%s", entry["epoch"], self._epochs, entry["loss"], accuracy
        )

    def on_pause(self, state: RunState, *, final: bool) -> None:
        if final and self._bar is not None:
            self._bar.close()

    def _write_line(self, state: RunState) -> None:
        self._last_line = time.monotonic()
        left = self._total_steps - state.step
        eta = tqdm.format_interval(left * self._seconds_per_step())
        logger.info(
            "%s, step %d/%d, %s, ETA %s",
            self._epoch_text(state),
            state.step,
            self._total_steps,
            self._figures(),
            eta,
        )

    def _epoch_text(self, state: RunState) -> str:
        return f"epoch {min(state.epoch + 1, self._epochs)}/{self._epochs}"

    def _seconds_per_step(self) -> float:
        return sum(report.seconds for report in self._recent) / len(self._recent)

    def _figures(self) -> str:
        seconds = sum(report.seconds for report in self._recent)
        loss = sum(report.loss for report in self._recent) / len(self._recent)
        speed = sum(report.global_images for report in self._recent) / seconds
        waited = sum(report.phase_seconds["allreduce_wait"] for report in self._recent)
        per_rank = f" ({speed / self._ranks:.1f}/rank)" if self._ranks > 1 else ""
        return f"loss {loss:.3f}, {speed:.1f} img/s{per_rank}, wait {waited / seconds:.0%}"
