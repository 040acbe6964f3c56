"""edgeddl.train: a training run started from Python, in a script, under mpirun or in a notebook."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeddl import log, machine
from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError
from edgeddl.options import check_options
from edgeddl.registry import check_extension
from edgeddl.training.stop import StopRequest

if TYPE_CHECKING:
    from edgeddl.comm.communicator import Communicator
    from edgeddl.inference import TrainedModel
    from edgeddl.training.loop import Extension
    from edgeddl.training.runner import Outcome


@dataclass(frozen=True)
class Run:
    """A finished or stopped run, the same on all ranks.

    folder: the run folder, on the disk of rank 0.
    summary: the contents of its summary.json.
    exit_code: what `edgeddl train` would return; 130 after Ctrl-C.
    """

    folder: Path
    summary: dict[str, Any]
    exit_code: int

    @property
    def accuracy(self) -> float | None:
        """Of the test images, after the last evaluation."""
        return self.summary["final_accuracy"]

    @property
    def best_accuracy(self) -> float | None:
        return self.summary["best_accuracy"]

    def load(self) -> TrainedModel:
        """The best model of this run."""
        from edgeddl.inference import load

        return load(self.folder)


def train(
    model: str | Callable[..., Any] = "resnet18",
    dataset: str | Callable[..., Any] = "cifar10",
    *,
    extensions: Sequence[Extension] = (),
    **options: Any,
) -> Run:
    """Train a model on a data set; the options are those of `edgeddl train`, as batch_size=32.

    model, dataset: names, or "package.module:callable", or the callable itself, which must be
        importable by its name.
    extensions: called after steps and epochs, besides those of the option `extension`.

    Under mpirun the call is collective. Ctrl-C ends the run after a step, with a checkpoint. An
    error that occurs on one rank only ends the job.
    """
    words = {"model": _place(model), "dataset": _place(dataset), **options}
    given = check_options("edgeddl.train", words)
    config = TrainConfig(**given)
    for extension in extensions:
        check_extension(repr(extension), extension)
    threads = config.threads or machine.default_threads()
    machine.limit_threads(threads)  # before NumPy is imported, if it is not yet
    if not log.logger.handlers:
        log.configure()
    from edgeddl.comm.connect import connect

    communicator = connect()
    log.set_rank(communicator.rank, communicator.size, communicator.host)
    try:
        outcome = train_as_rank(config, given, threads, communicator, extensions)
    except BaseException as error:
        if communicator.size > 1 and not getattr(error, "on_all_ranks", False):
            log.logger.error("ended by an exception\n%s", traceback.format_exc())
            communicator.abort(getattr(error, "exit_code", 1))
        raise
    return Run(outcome.folder, outcome.summary, outcome.exit_code)


def train_as_rank(
    config: TrainConfig,
    given: Collection[str],
    threads: int,
    communicator: Communicator,
    extensions: Sequence[Extension] = (),
) -> Outcome:
    """Train with a watchdog, stop on signals, and close the communicator."""
    from edgeddl.comm.watchdog import watching
    from edgeddl.training.runner import run_training

    stop = StopRequest()
    in_main = threading.current_thread() is threading.main_thread()  # only it receives signals
    watched = watching(
        communicator,
        warning_seconds=config.stall_warning_seconds,
        timeout_seconds=config.stall_timeout_seconds,
    )
    with stop.listening() if in_main else contextlib.nullcontext(), watched as communicator:
        outcome = run_training(
            config, communicator, given=given, threads=threads, stop=stop, extensions=extensions
        )
        communicator.close()
    return outcome


def _place(value: str | Callable[..., Any]) -> str:
    """A callable as "package.module:name"."""
    if isinstance(value, str):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not module or not name.isidentifier():
        raise ConfigError(
            f"{value!r} cannot be imported by its name",
            hint="define it at the top level of a module, with def or class",
        )
    return f"{module}:{name}"
