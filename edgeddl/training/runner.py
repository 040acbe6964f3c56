"""Runs a training run: builds all parts, each from the ones before it, and runs the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl import log, machine
from edgeddl.chainer_compat import chainer
from edgeddl.comm.communicator import Communicator
from edgeddl.config import TrainConfig
from edgeddl.data import TrainLoader
from edgeddl.errors import EdgeddlError
from edgeddl.log import logger
from edgeddl.training.banner import render_banner
from edgeddl.training.clock import StepClock
from edgeddl.training.evaluator import Evaluation, evaluate
from edgeddl.training.extensions.balancing import make_balancing
from edgeddl.training.extensions.checkpointing import make_checkpointing
from edgeddl.training.extensions.events import recording_events
from edgeddl.training.extensions.metering import metering
from edgeddl.training.extensions.own import using_own
from edgeddl.training.extensions.progress import make_progress
from edgeddl.training.extensions.timeline import make_timeline
from edgeddl.training.forecast import (
    choose_allreduce,
    make_forecast,
    measure_computing,
    remaining_seconds,
    share_by_speed,
)
from edgeddl.training.linpack_requirement import require_linpack
from edgeddl.training.loop import Extension, TrainingLoop
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.resume import continue_run
from edgeddl.training.run_folder import RunFolder
from edgeddl.training.run_lock import using
from edgeddl.training.stages import stage
from edgeddl.training.startup import prepare_run
from edgeddl.training.stop import StopRequest, exit_code_after_stop
from edgeddl.training.summary import publish_summary, rank_summary, stored_summary, summarise
from edgeddl.training.telemetry import VitalsSampler
from edgeddl.training.updater import Updater


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its summary and rank 0's folder, the same on all ranks; the exit code."""

    summary: dict[str, Any]
    exit_code: int
    folder: Path


def run_training(
    config: TrainConfig,
    communicator: Communicator,
    *,
    given: Collection[str] | None = None,
    threads: int = 1,
    stop: StopRequest | None = None,
    extensions: Sequence[Extension] = (),
) -> Outcome:
    """Train as configured, on all ranks together. `threads` is only reported.

    `given` names the options that the user has set; None stands for all of them. A resumed run
    takes the others from the run it continues.
    """
    config = continue_run(config, given, communicator)
    linpack = require_linpack(communicator) if config.require_linpack else []
    run = prepare_run(config, communicator)
    if run.is_complete and (summary := _repeat_summary(run)):
        return Outcome(summary, 0, _shared_folder(run).path)
    ranks = communicator.allgather((communicator.host, machine.cpu_name(), threads))
    folder = run.folder.path if run.folder else None
    with using(folder), log.recording(_log_path(run)) as log_file:
        with stage("connecting ranks and measuring links and computation"):
            allreduce, image_seconds = choose_allreduce(run), measure_computing(run)
            share_by_speed(run, image_seconds)
            forecast = make_forecast(run, allreduce, image_seconds)
        eta = remaining_seconds(run, image_seconds, forecast)
        banner = render_banner(run, ranks, forecast, linpack, remaining_seconds=eta)
        log_file.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {banner}")
        if run.folder is not None:
            log.print_text(banner)
        return _train(run, ranks, stop or StopRequest(), extensions)


def _repeat_summary(run: PreparedRun) -> dict[str, Any] | None:
    """Print the summary of a complete run again, if it is in its folder; returns it."""
    own = stored_summary(run.folder, run.state.step) if run.folder else None
    summary: dict[str, Any] | None = run.communicator.allgather(own)[0]
    if summary and run.folder:
        limit = "--epochs" if run.state.epoch >= run.config.epochs else "--max-steps"
        logger.info("the run is already complete; use a larger %s to continue", limit)
        publish_summary(run.config, run.folder, summary)
    return summary


def _log_path(run: PreparedRun) -> Path:
    """The path that rank 0 uses, but on this rank's host: hosts do not share disks."""
    return _shared_folder(run).log(run.communicator.rank)


def _shared_folder(run: PreparedRun) -> RunFolder:
    """Collective: the run folder of rank 0."""
    return run.communicator.allgather(run.folder)[0]


def _train(
    run: PreparedRun,
    ranks: list[tuple[str, str, int]],
    stop: StopRequest,
    given_extensions: Sequence[Extension],
) -> Outcome:
    folder = _shared_folder(run).path
    with closing(run.exchange) as exchange, closing(VitalsSampler()) as vitals:
        exchange.open()
        smoothing = run.config.label_smoothing
        updater = Updater(
            run.model, exchange, run.optimizer, label_smoothing=smoothing, vitals=vitals
        )
        timeline = make_timeline(run, updater.finish_pending_update)
        checkpointing = make_checkpointing(run, updater.finish_pending_update)
        with (
            metering(run, checkpointing) as meter,
            run.make_loader() as loader,
            recording_events(run, ranks, checkpointing) as events,
            using_own(run, given_extensions) as own,
        ):
            extensions = [
                *([timeline] if timeline else []),
                *make_balancing(run, loader),
                *make_progress(run),
                checkpointing,
                *([events] if events else []),
                *([meter] if meter else []),
                *own,
            ]
            make_clock = timeline.clock if timeline else StepClock
            loop = _make_loop(run, updater, loader, extensions, stop, make_clock)
            summary = _run_loop(run, loop, updater, ranks)
            if events is not None:
                events.end(summary)
            if meter is not None and not loop.stopped:  # a user who stops a run does not wait
                meter.await_last_scrape()
    exit_code = exit_code_after_stop() if loop.stopped else 0
    if run.folder is not None:
        publish_summary(run.config, run.folder, summary)
        if summary["measured_steps"]:
            exit_code = checkpointing.exit_code_if_unsaved(loop.state.step) or exit_code
    return Outcome(summary, exit_code, folder)


def _make_loop(
    run: PreparedRun,
    updater: Updater,
    loader: TrainLoader,
    extensions: list[Extension],
    stop: StopRequest,
    make_clock: Callable[[], StepClock],
) -> TrainingLoop:
    def evaluate_now() -> Evaluation:
        updater.finish_pending_update()
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
        make_clock=make_clock,
    )


def _run_loop(
    run: PreparedRun, loop: TrainingLoop, updater: Updater, ranks: list[tuple[str, str, int]]
) -> dict[str, Any]:
    """Run to the end, or to an error; returns the summary."""
    # A run that diverges ends with one message, which NumPy's warnings would hide.
    with chainer.using_config("train", True), np.errstate(over="ignore", invalid="ignore"):
        try:
            loop.run()
        except EdgeddlError as error:
            if error.on_all_ranks:  # no rank may leave while others still send to it
                updater.finish_pending_update()
            raise
        updater.finish_pending_update()
    rank = run.communicator.rank
    own = rank_summary(
        run.communicator,
        loop.stopwatch,
        threads=ranks[rank][2],
        bytes_sent=run.exchange.bytes_sent,
        batch_share=loop.state.shares[rank],
    )
    return summarise(
        run.config,
        loop.state,
        loop.stopwatch.steps,
        run.communicator.allgather(own),
        final_accuracy=loop.final_accuracy(),
        stopped=loop.stopped,
        data_verified=run.dataset.verified,
    )
