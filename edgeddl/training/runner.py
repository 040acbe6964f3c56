"""Runs a training run: the one place where all parts meet."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from edgeddl import machine
from edgeddl.atomic_file import write_json
from edgeddl.chainer_compat import chainer
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.compression import COMPRESSIONS
from edgeddl.comm.naive import NaiveReducer
from edgeddl.comm.reducer import BucketReducer, Reducer
from edgeddl.comm.watchdog import Watchdog, WatchedCommunicator
from edgeddl.config import TrainConfig
from edgeddl.data import NO_AUGMENTATION, Augmentation, TrainLoader
from edgeddl.log import logger
from edgeddl.training.banner import render_banner
from edgeddl.training.checkpoint import CheckpointStore
from edgeddl.training.evaluator import evaluate
from edgeddl.training.extensions.checkpointing import Checkpointing
from edgeddl.training.extensions.progress import Progress
from edgeddl.training.loop import Extension, TrainingLoop
from edgeddl.training.parameters import named_parameters
from edgeddl.training.startup import PreparedRun, prepare_run
from edgeddl.training.stop import StopRequest, exit_code_after_stop
from edgeddl.training.summary import rank_summary, render_summary, summarise
from edgeddl.training.updater import Updater


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its summary, the same on all ranks, and the exit code of a stopped one."""

    summary: dict[str, Any]
    exit_code: int


def run_training(
    config: TrainConfig,
    communicator: Communicator,
    *,
    threads: int = 1,
    stop: StopRequest | None = None,
) -> Outcome:
    """Train as configured, on all ranks together. `threads` is only reported."""
    stop = stop or StopRequest()
    with ExitStack() as cleanup:
        if communicator.size > 1:
            communicator = _watch(communicator, config, cleanup)
        run = prepare_run(config, communicator)
        ranks = communicator.allgather((communicator.host, machine.cpu_name(), threads))
        if communicator.rank == 0:
            print(render_banner(run, ranks), flush=True)
        reducer = _make_reducer(run)
        loader = cleanup.enter_context(_make_loader(run))
        loop = _make_loop(run, reducer, loader, stop)
        with chainer.using_config("train", True):
            loop.run()
        summary = _summarise(run, loop, reducer, threads)
        # Not when something was raised: the thread may be waiting for ranks that never come.
        reducer.close()
        return Outcome(summary, exit_code_after_stop() if loop.stopped else 0)


def _watch(communicator: Communicator, config: TrainConfig, cleanup: ExitStack) -> Communicator:
    watchdog = Watchdog(
        communicator,
        warning_seconds=config.stall_warning_seconds,
        timeout_seconds=config.stall_timeout_seconds,
    )
    cleanup.callback(watchdog.close)
    return WatchedCommunicator(communicator, watchdog)


def _make_reducer(run: PreparedRun) -> Reducer:
    bucket_sum = COMPRESSIONS[run.config.compression]()
    if run.config.communicator == "naive":
        return NaiveReducer(run.communicator, run.arena, bucket_sum)
    return BucketReducer(run.communicator, run.arena, named_parameters(run.model), bucket_sum)


def _make_loader(run: PreparedRun) -> TrainLoader:
    config = run.config
    augmentation = Augmentation(cutout=config.cutout) if config.augment else NO_AUGMENTATION
    return TrainLoader(
        run.dataset.train,
        run.dataset.mean,
        run.dataset.std,
        rank=run.communicator.rank,
        size=run.communicator.size,
        batch_size=config.batch_size,
        accumulation=config.accumulation,
        seed=config.seed,
        augmentation=augmentation,
    )


def _make_loop(
    run: PreparedRun, reducer: Reducer, loader: TrainLoader, stop: StopRequest
) -> TrainingLoop:
    smoothing = run.config.label_smoothing
    return TrainingLoop(
        run.config,
        run.state,
        loader=loader,
        epoch_images=run.epoch_images,
        updater=Updater(run.model, reducer, run.optimizer, label_smoothing=smoothing),
        schedule=run.schedule,
        evaluate=lambda: evaluate(run.model, run.dataset, run.communicator),
        extensions=_make_extensions(run),
        stop=stop,
    )


def _make_extensions(run: PreparedRun) -> list[Extension]:
    config = run.config
    extensions: list[Extension] = []
    if run.communicator.rank == 0 and config.progress != "none":
        extensions.append(
            Progress(
                config.progress,
                epochs=config.epochs,
                total_steps=run.total_steps,
                first_step=run.state.step,
                ranks=run.communicator.size,
            )
        )
    keep = config.keep_checkpoints
    store = CheckpointStore(run.folder.checkpoints, keep) if run.folder else None
    extensions.append(Checkpointing(run.snapshots, store, config.checkpoint_every))
    return extensions


def _summarise(
    run: PreparedRun, loop: TrainingLoop, reducer: Reducer, threads: int
) -> dict[str, Any]:
    accuracy = loop.final_accuracy()
    own = rank_summary(run.communicator, loop.stopwatch, threads, reducer.bytes_sent)
    summary = summarise(
        run.config,
        loop.state,
        loop.stopwatch,
        run.communicator.allgather(own),
        final_accuracy=accuracy,
        stopped=loop.stopped,
    )
    if run.folder is not None:
        _publish(run, summary)
    return summary


def _publish(run: PreparedRun, summary: dict[str, Any]) -> None:
    """Rank 0 writes the summary to its files and to the screen."""
    assert run.folder is not None
    files = {
        "checkpoints": run.folder.checkpoints,
        "summary": run.config.summary or run.folder.summary,
    }
    for path in {run.folder.summary, files["summary"]}:
        try:
            write_json(path, summary)
        except OSError as error:
            logger.warning("the summary could not be written to %s: %s", path, error.strerror)
    print(render_summary(summary, {name: str(path) for name, path in files.items()}), flush=True)
