"""Extensions that write losses, accuracy and speed for other programs: TensorBoard and MLflow."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError
from edgeddl.log import logger
from edgeddl.training.loop import Extension, StepReport
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.state import RunState

# by option, which is also the name of the package and of the extra: the module and its class
TRACKERS = {
    "tensorboard": "edgeddl.training.extensions.tensorboard:TensorBoard",
    "mlflow": "edgeddl.training.extensions.mlflow:MLflow",
}


class Tracker(ABC):
    """Training continues if a tracker fails, because a run is worth more than its record."""

    name: str

    def __init__(self) -> None:
        self._failed = False

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._try(self.close, error is None)

    @abstractmethod
    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add these values of a step."""

    @abstractmethod
    def flush(self) -> None:
        """Make values visible to other programs."""

    @abstractmethod
    def close(self, succeeded: bool) -> None:
        """Write what is left; the run has ended."""

    def on_step(self, report: StepReport) -> None:
        values = {
            "train/loss": report.loss,
            "train/learning_rate": report.learning_rate,
            "speed/images_per_second": report.global_images / report.seconds,
        }
        self._try(self.write, report.state.step, values)

    def on_epoch(self, state: RunState) -> None:
        entry = state.history[-1]
        names = {"loss": "epoch/loss", "test_loss": "test/loss", "accuracy": "test/accuracy"}
        values = {text: entry[name] for name, text in names.items() if name in entry}
        self._try(self.write, state.step, values)
        self._try(self.flush)

    def on_pause(self, state: RunState, *, final: bool) -> None:
        if final and (end := state.end_evaluation):
            values = {"test/loss": end["test_loss"], "test/accuracy": end["accuracy"]}
            self._try(self.write, state.step, values)

    def _try(self, work: Any, *arguments: Any) -> None:
        if self._failed:
            return
        try:
            work(*arguments)
        except Exception as error:
            self._failed = True
            logger.warning("training continues, but without %s: %s", self.name, error)


def check_trackers(config: TrainConfig) -> None:
    """Raise if the package of a requested tracker is missing."""
    for option in TRACKERS:
        if getattr(config, option) is not None:
            try:
                importlib.import_module(option)
            except ImportError as error:
                raise ConfigError(
                    f"--{option} needs the package {option}: {error}",
                    hint=f"run pip install 'edgeddl[{option}]' on the host of rank 0",
                ) from error


def make_trackers(run: PreparedRun) -> list[Extension]:
    """The trackers of the options, on rank 0 only."""
    chosen = [option for option in TRACKERS if getattr(run.config, option) is not None]
    return [_make(option, run) for option in chosen] if run.folder else []


def _make(option: str, run: PreparedRun) -> Extension:
    module, _, name = TRACKERS[option].partition(":")
    value = getattr(run.config, option)
    try:
        return getattr(importlib.import_module(module), name)(value, run)
    except Exception as error:
        raise ConfigError(f"--{option} {value}: {error}") from error
