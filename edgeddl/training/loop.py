"""The training loop: steps, evaluation and checkpoints, until the run is complete or stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeddl.config import TrainConfig
from edgeddl.data import TrainLoader
from edgeddl.training.clock import StepClock, Stopwatch
from edgeddl.training.divergence import check_evaluation, check_finite, check_losses
from edgeddl.training.evaluator import Evaluation
from edgeddl.training.schedule import Schedule
from edgeddl.training.state import RunState
from edgeddl.training.stop import StopRequest
from edgeddl.training.telemetry import RankStep
from edgeddl.training.updater import Updater


@dataclass(frozen=True)
class StepReport:
    """A step as extensions see it, on each rank.

    ranks: each rank's report of the previous step; empty reports in the first step
    """

    state: RunState
    loss: float
    global_images: int
    seconds: float
    phase_seconds: dict[str, float]
    ranks: tuple[RankStep, ...]
    learning_rate: float
    own_images: int

    @property
    def busy_seconds(self) -> tuple[float, ...]:
        """By rank, the time of the previous step without waiting."""
        return tuple(rank.busy_seconds for rank in self.ranks)


class Extension(Protocol):
    """Called on every rank, in the given order, so it may make collective calls."""

    def on_step(self, report: StepReport) -> None:
        """After each step."""

    def on_epoch(self, state: RunState) -> None:
        """After each epoch, when the history has its entry."""

    def on_pause(self, state: RunState, *, final: bool) -> None:
        """After a step and its evaluation, if the run could be resumed from here."""


class TrainingLoop:
    """Runs from the current state to the end of the last epoch, or to a stop."""

    def __init__(
        self,
        config: TrainConfig,
        state: RunState,
        *,
        loader: TrainLoader,
        epoch_images: int,
        classes: int,
        updater: Updater,
        schedule: Schedule,
        evaluate: Callable[[], Evaluation],
        extensions: Sequence[Extension],
        stop: StopRequest,
        make_clock: Callable[[], StepClock] = StepClock,
    ) -> None:
        self.state = state
        self.stopwatch = Stopwatch()
        self.stopped = False  # by a signal, before the end
        self._config = config
        self._loader = loader
        self._epoch_images = epoch_images
        self._classes = classes
        self._updater = updater
        self._schedule = schedule
        self._evaluate = evaluate
        self._extensions = extensions
        self._stop = stop
        self._make_clock = make_clock
        self._synchronised = True  # all ranks hold the same parameters

    @property
    def done(self) -> bool:
        reached = self._config.max_steps is not None and self.state.step >= self._config.max_steps
        return (reached and self._synchronised) or self.state.epoch >= self._config.epochs

    def run(self) -> None:
        if self.state.epoch_to_record:  # the run was stopped before its evaluation
            self._record_epoch()
            self._pause()
        while not (self.done or self.stopped):
            self._run_epoch()
        if self._end_is_to_record:  # likewise
            self._record_end()
            self._pause()

    def final_accuracy(self) -> float | None:
        """Accuracy at the end of the run.

        A run that was stopped by a signal is not evaluated, because its user does not want to wait.
        The accuracy is then that of the last evaluation; None if there was none.
        """
        if self.state.accuracy is not None:
            return self.state.accuracy
        return next((e["accuracy"] for e in reversed(self.state.history) if "accuracy" in e), None)

    def _run_epoch(self) -> None:
        steps = self._loader.steps(self.state.epoch, self.state.first_image)
        while not (self.done or self.stopped):
            clock = self._make_clock()
            with clock.phase("data"):
                batch = next(steps, None)
            if batch is None:
                return
            rate = self._schedule(self.state.progress(self._epoch_images))
            result = self._updater.step(batch, rate, self._stop.received, clock)
            seconds = clock.elapsed()
            check_finite("loss", result.loss, self.state.step + 1)
            self.state.advance(result.loss, batch.images, self._epoch_images)
            check_losses(self.state.step_losses, self._classes)
            self.stopwatch.add(seconds, clock.phase_seconds, batch.own_images)
            report = StepReport(
                self.state,
                result.loss,
                batch.images,
                seconds,
                clock.phase_seconds,
                result.ranks,
                rate,
                batch.own_images,
            )
            for extension in self._extensions:
                extension.on_step(report)
            self._synchronised = result.synchronised
            if not self._synchronised:
                continue
            self.stopped = result.stop_requested and not self.done
            if self.state.epoch_to_record and not self.stopped:
                self._record_epoch()
            if self._end_is_to_record:
                self._record_end()
            self._pause()

    def _pause(self) -> None:
        for extension in self._extensions:
            extension.on_pause(self.state, final=self.done or self.stopped)

    def _record_epoch(self) -> None:
        state, config = self.state, self._config
        if state.epoch % config.eval_every == 0 or state.epoch >= config.epochs:
            evaluation = self._checked_evaluation()
            state.record_epoch(evaluation.loss, evaluation.accuracy)
        else:
            state.record_epoch(None, None)
        for extension in self._extensions:
            extension.on_epoch(state)

    @property
    def _end_is_to_record(self) -> bool:
        """Whether --max-steps has ended the run at a step without an evaluation."""
        return self.done and not self.stopped and self.state.accuracy is None

    def _record_end(self) -> None:
        evaluation = self._checked_evaluation()
        self.state.record_end(evaluation.loss, evaluation.accuracy)

    def _checked_evaluation(self) -> Evaluation:
        evaluation = self._evaluate()
        check_evaluation(evaluation.loss, self.state.step_losses, self._classes)
        return evaluation
