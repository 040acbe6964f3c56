"""Runs a training run: the one place where all parts meet."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl import log, machine
from edgeddl.atomic_file import write_json
from edgeddl.chainer_compat import chainer
from edgeddl.comm.bucket import Bucket
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.naive import NaiveReducer
from edgeddl.comm.reducer import LANES, BucketReducer, Reducer
from edgeddl.config import TrainConfig, kernel_choice
from edgeddl.data import NO_AUGMENTATION, Augmentation, TrainLoader
from edgeddl.errors import CheckpointError, EdgeddlError
from edgeddl.log import logger
from edgeddl.models import MODELS
from edgeddl.training.balance import Balancer
from edgeddl.training.banner import render_banner
from edgeddl.training.checkpoint import CheckpointStore
from edgeddl.training.clock import StepClock
from edgeddl.training.evaluator import Evaluation, evaluate
from edgeddl.training.extensions.balancing import Balancing
from edgeddl.training.extensions.checkpointing import Checkpointing
from edgeddl.training.extensions.events import recording_events
from edgeddl.training.extensions.metering import Metering, metering
from edgeddl.training.extensions.progress import Progress
from edgeddl.training.extensions.timeline import RecordedSum, Timeline
from edgeddl.training.forecast import (
    choose_allreduce,
    make_forecast,
    measure_computing,
    remaining_seconds,
    share_by_speed,
)
from edgeddl.training.late_update import LateUpdate
from edgeddl.training.linpack_requirement import require_linpack
from edgeddl.training.local_steps import LocalSteps
from edgeddl.training.loop import Extension, TrainingLoop
from edgeddl.training.parameters import named_parameters
from edgeddl.training.resume import continue_run
from edgeddl.training.run_folder import RunFolder
from edgeddl.training.run_lock import using
from edgeddl.training.startup import PreparedRun, prepare_run
from edgeddl.training.stop import StopRequest, exit_code_after_stop
from edgeddl.training.summary import rank_summary, render_summary, summarise
from edgeddl.training.telemetry import VitalsSampler
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
    given: Collection[str] | None = None,
    threads: int = 1,
    stop: StopRequest | None = None,
) -> Outcome:
    """Train as configured, on all ranks together. `threads` is only reported.

    `given` names the options that the user has set: a resumed run has its own for all others. None
    stands for all options.
    """
    config = continue_run(config, given, communicator)
    linpack = require_linpack(communicator) if config.require_linpack else []
    run = prepare_run(config, communicator)
    ranks = communicator.allgather((communicator.host, machine.cpu_name(), threads))
    folder = run.folder.path if run.folder else None
    with using(folder), log.recording(_log_path(run)) as log_file:
        allreduce, image_seconds = choose_allreduce(run), measure_computing(run)
        share_by_speed(run, image_seconds)
        forecast = make_forecast(run, allreduce, image_seconds)
        eta = remaining_seconds(run, image_seconds, forecast)
        banner = render_banner(run, ranks, forecast, linpack, remaining_seconds=eta)
        log_file.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {banner}")
        if run.folder is not None:
            log.print_text(banner)
        return _train(run, ranks, stop or StopRequest())


def _log_path(run: PreparedRun) -> Path:
    """Where rank 0 has the run's folder, but on this rank's host: disks are not shared."""
    folders = run.communicator.allgather(run.folder)
    return folders[0].log(run.communicator.rank)


def _train(run: PreparedRun, ranks: list[tuple[str, str, int]], stop: StopRequest) -> Outcome:
    config, local_steps = run.config, _make_local_steps(run)
    store = CheckpointStore(run.folder.checkpoints, config.keep_checkpoints) if run.folder else None
    late, late_update = _late_bucket(run), LateUpdate()
    timeline = _make_timeline(run, late_update)
    checkpointing = Checkpointing(
        run.snapshots, store, config.checkpoint_every, late_update, first_step=run.state.step
    )
    with (
        metering(run, local_steps, checkpointing) as meter,
        closing(_make_reducer(run, timeline, meter, late)) as reducer,
        closing(VitalsSampler()) as vitals,
        make_loader(run) as loader,
        recording_events(run, ranks, checkpointing) as events,
    ):
        watching = [*_make_balancing(run, loader), *make_progress(run), checkpointing]
        watching += [extension for extension in (events, meter) if extension]
        extensions = [*([timeline] if timeline else []), *watching]
        updater = _make_updater(run, reducer, local_steps, vitals, late, late_update)
        loop = _make_loop(run, updater, late_update, loader, extensions, stop, timeline)
        # A run that diverges is ended with one message; NumPy's, from every layer, would hide it.
        with chainer.using_config("train", True), np.errstate(over="ignore", invalid="ignore"):
            _run_loop(loop, late_update)
            bytes_sent = reducer.bytes_sent + (local_steps.bytes_sent if local_steps else 0)
            summary = _summarise(run, loop, bytes_sent, ranks[run.communicator.rank][2])
        if events is not None:
            events.end(summary)
        if meter is not None and not loop.stopped:  # whoever stops it does not want to wait
            meter.await_last_scrape()
    exit_code = exit_code_after_stop() if loop.stopped else 0
    if run.folder is not None:
        _publish(run, run.folder, summary)
        if summary["measured_steps"] and checkpointing.saved_step != loop.state.step:
            exit_code = _complain_of_loss(checkpointing.saved_step, loop.state.step)
    return Outcome(summary, exit_code)


def _run_loop(loop: TrainingLoop, late_update: LateUpdate) -> None:
    """To its end, or to an error; no rank leaves in good order while others send to it."""
    try:
        loop.run()
    except EdgeddlError as error:
        if error.on_all_ranks:
            late_update.settle()
        raise
    late_update.settle()


def _make_timeline(run: PreparedRun, late_update: LateUpdate) -> Timeline | None:
    config = run.config
    if config.timeline is None:
        return None
    steps, path = config.timeline_steps, config.timeline
    return Timeline(path, steps, run.communicator, run.model, late_update)


def _late_bucket(run: PreparedRun) -> Bucket | None:
    """A bucket of the last layers, if its gradients may arrive during the next forward pass.

    That pass must wait before it reads their parameters. Models of edgeddl do, as they read them by
    edgeddl's functions only; what a model of the user's reads, nobody knows.
    """
    buckets, config = run.arena.plan.buckets, run.config
    sums = config.communicator == "bucketed" and config.local_steps == 1
    waits = config.model in MODELS and kernel_choice() != "chainer"
    if run.communicator.size == 1 or len(buckets) < 2 or not (sums and waits):
        return None
    # Of many the second: the very first can leave a layer earlier, when the link has nothing to do.
    return buckets[1 if len(buckets) > 3 else 0]


def _make_reducer(
    run: PreparedRun, timeline: Timeline | None, meter: Metering | None, late: Bucket | None
) -> Reducer:
    bucket_sum = RecordedSum(run.bucket_sum, timeline) if timeline else run.bucket_sum
    bucket_sum = meter.timed(bucket_sum) if meter else bucket_sum
    if run.config.communicator == "naive":
        return NaiveReducer(run.communicator, run.arena, bucket_sum)
    parameters = named_parameters(run.model)
    late_parts = 1 if run.config.compression == "powersgd" else LANES  # which sums whole matrices
    return BucketReducer(run.communicator, run.arena, parameters, bucket_sum, late, late_parts)


def _make_local_steps(run: PreparedRun) -> LocalSteps | None:
    if run.config.local_steps == 1:
        return None
    trained = run.arena.plan.trained_length
    arrays = (run.optimizer.parameters[:trained], run.optimizer.velocity[:trained])
    return LocalSteps(run.communicator, arrays, steps=run.config.local_steps)


def _make_updater(
    run: PreparedRun,
    reducer: Reducer,
    local_steps: LocalSteps | None,
    vitals: VitalsSampler,
    late: Bucket | None,
    late_update: LateUpdate,
) -> Updater:
    return Updater(
        run.model,
        reducer,
        run.optimizer,
        rank=run.communicator.rank,
        ranks=run.communicator.size,
        label_smoothing=run.config.label_smoothing,
        local_steps=local_steps,
        late=late,
        late_update=late_update,
        vitals=vitals,
    )


def make_loader(run: PreparedRun) -> TrainLoader:
    """The rank's training images, in the order of the run's seed."""
    config = run.config
    augmentation = Augmentation() if config.augment else NO_AUGMENTATION
    return TrainLoader(
        run.dataset.train,
        run.dataset.mean,
        run.dataset.std,
        rank=run.communicator.rank,
        shares=run.state.shares,
        batch_size=config.batch_size,
        accumulation=config.accumulation,
        seed=config.seed,
        augmentation=replace(augmentation, cutout=config.cutout),
    )


def _make_loop(
    run: PreparedRun,
    updater: Updater,
    late_update: LateUpdate,
    loader: TrainLoader,
    extensions: Sequence[Extension],
    stop: StopRequest,
    timeline: Timeline | None,
) -> TrainingLoop:
    def evaluate_now() -> Evaluation:
        late_update.settle()
        return evaluate(run.model, run.dataset, run.communicator, run.state.shares)

    return TrainingLoop(
        run.config,
        run.state,
        loader=loader,
        epoch_images=run.epoch_images,
        classes=len(run.dataset.classes),
        updater=updater,
        schedule=run.schedule,
        evaluate=evaluate_now,
        extensions=extensions,
        stop=stop,
        make_clock=timeline.clock if timeline else StepClock,
    )


def _make_balancing(run: PreparedRun, loader: TrainLoader) -> list[Extension]:
    """Where there is something to balance."""
    if run.config.balance != "auto" or run.communicator.size == 1:
        return []
    return [Balancing(Balancer(run.state.shares), loader, speaks=run.communicator.rank == 0)]


def make_progress(run: PreparedRun) -> list[Extension]:
    """On rank 0, unless nobody wants to see it."""
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


def _summarise(
    run: PreparedRun, loop: TrainingLoop, bytes_sent: int, threads: int
) -> dict[str, Any]:
    accuracy = loop.final_accuracy()
    own = rank_summary(
        run.communicator,
        loop.stopwatch,
        threads,
        bytes_sent,
        batch_share=loop.state.shares[run.communicator.rank],
    )
    return summarise(
        run.config,
        loop.state,
        loop.stopwatch.steps,
        run.communicator.allgather(own),
        final_accuracy=accuracy,
        stopped=loop.stopped,
        data_verified=run.dataset.verified,
    )


def _publish(run: PreparedRun, folder: RunFolder, summary: dict[str, Any]) -> None:
    """Rank 0 writes the summary to its files and to the screen."""
    paths = [run.config.summary] if run.config.summary else []
    if summary["measured_steps"]:
        paths.append(folder.summary)
    else:
        limit = "--epochs" if summary["epochs"] >= run.config.epochs else "--max-steps"
        logger.info("the run is already complete; use a larger %s to continue", limit)
    written = [path for path in paths if _write_summary(path, summary)]
    files = [("checkpoints", str(folder.checkpoints))]
    log.print_text(render_summary(summary, files + [("summary", str(path)) for path in written]))


def _write_summary(path: Path, summary: dict[str, Any]) -> bool:
    try:
        write_json(path, summary)
    except OSError as error:
        logger.warning("the summary could not be written to %s: %s", path, error.strerror)
        return False
    return True


def _complain_of_loss(saved_step: int | None, step: int) -> int:
    """The trained model is nowhere: more than a warning. Returns the exit code."""
    where = "there is no checkpoint" if saved_step is None else f"the last is of step {saved_step}"
    error = CheckpointError(
        f"the model as trained up to step {step} is NOT saved: {where}",
        hint="make room, then continue with --resume auto",
    )
    logger.error("%s", error)
    return error.exit_code
