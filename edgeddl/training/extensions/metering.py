"""Serves the metrics of a run to Prometheus, and its live page: `--metrics-port`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import edgeddl
from edgeddl import kernels, machine
from edgeddl.comm.agreement import together
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import SummedBucket
from edgeddl.config import metrics_address, metrics_port
from edgeddl.errors import DivergenceError
from edgeddl.log import logger
from edgeddl.metrics import names
from edgeddl.metrics.instruments import CONTENT_TYPE, Instruments
from edgeddl.metrics.listening import listen
from edgeddl.metrics.scrapes import Scrapes
from edgeddl.metrics.server import Answer, MetricsServer, Pages
from edgeddl.training.extensions.checkpointing import Checkpointing
from edgeddl.training.extensions.live_page import LivePage
from edgeddl.training.loop import StepReport
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.state import RunState
from edgeddl.training.step_window import StepWindow


@contextmanager
def metering(run: PreparedRun, checkpointing: Checkpointing) -> Iterator[Metering | None]:
    """Serve on every rank within this block, or fail with one message; None without --metrics-port.

    Collective; all ranks use the port of rank 0, whose host has started the run.
    """
    own = together(run.communicator, lambda: metrics_port(run.config.metrics_port))
    port = run.communicator.allgather(own)[0]
    if port is None:
        yield None
        return
    meter = Metering(run, checkpointing)
    try:
        server = together(run.communicator, lambda: meter.serve(port))
        if run.communicator.rank == 0:
            place = f"http://{server.address}:{server.port}"
            logger.info("live page: %s/  metrics: %s/metrics", place, place)
        yield meter
    except DivergenceError:
        meter.record_divergence()
        meter.await_last_scrape()
        raise
    finally:
        meter.close()


def local_rank(communicator: Communicator) -> int:
    """A rank's number on its host."""
    if communicator.medium == "threads":  # all on one machine, whatever their hosts' names
        return communicator.rank
    return communicator.hosts[: communicator.rank].count(communicator.host)


class Metering:
    """Runs on every rank. Steps update the values, so a scrape never waits for a step.

    Rank 0's values of other ranks come from the reports that travel with the loss. So metering adds
    no messages, and does not change the results of a run.
    """

    def __init__(self, run: PreparedRun, checkpointing: Checkpointing) -> None:
        communicator = run.communicator
        name = communicator.allgather(run.folder and run.folder.path.resolve().name)[0]
        self._instruments = Instruments(
            run=name, rank=str(communicator.rank), host=communicator.host
        )
        self._config = run.config
        self._communicator = communicator
        self._epoch_images = run.epoch_images
        self._exchange = run.exchange
        self._exchange.observers.append(self._observe_bucket)
        self._bytes_sent = 0  # that the metric has counted
        self._checkpointing = checkpointing
        self._saved_step: int | None = None
        self._pace = _Pace(run.state.step, run.total_steps)
        self._window = StepWindow()
        self._page = LivePage(name, communicator.hosts) if communicator.rank == 0 else None
        self._server: MetricsServer | None = None
        self._scrapes = Scrapes()
        self._set_constants(run)
        self._set_evaluation(run.state)

    def serve(self, first_port: int) -> MetricsServer:
        """Listen on this rank's port."""
        communicator = self._communicator
        listener = listen(
            metrics_address(self._config.metrics_address),
            first_port + local_rank(communicator),
            option="--metrics-port",
            who=f"rank {communicator.rank}'s metrics",
        )
        self._server = MetricsServer(listener, self._pages())
        return self._server

    def record_divergence(self) -> None:
        self._instruments.set(names.LOSS, math.nan)

    def await_last_scrape(self) -> None:
        """Wait until Prometheus, if it scrapes this run, has the values of the last steps."""
        self._scrapes.await_last()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def on_step(self, report: StepReport) -> None:
        instruments, state = self._instruments, report.state
        instruments.add(names.STEPS, 1)
        instruments.add(names.SAMPLES, report.own_images)
        instruments.observe(names.STEP_SECONDS, report.seconds)
        for phase, seconds in report.phase_seconds.items():
            instruments.observe(names.PHASE_SECONDS, seconds, phase=phase)
        instruments.set(names.LOSS, report.loss)
        instruments.set(names.LEARNING_RATE, report.learning_rate)
        instruments.set(names.STEP, state.step)
        instruments.set(names.EPOCH, state.progress(self._epoch_images))
        instruments.set(names.REMAINING_SECONDS, self._pace.remaining_seconds(state.step))
        instruments.set(names.BATCH_IMAGES, state.shares[self._communicator.rank])
        self._count_bytes_sent()
        self._window.add(report.ranks)
        if len(self._window):
            self._set_window(report)

    def on_epoch(self, state: RunState) -> None:
        self._set_evaluation(state)

    def on_pause(self, state: RunState, *, final: bool) -> None:
        """Called after checkpointing; only rank 0 knows whether a checkpoint was written."""
        self._count_bytes_sent()
        if self._checkpointing.saved_step != self._saved_step:
            self._saved_step = self._checkpointing.saved_step
            self._instruments.set(names.CHECKPOINT_TIME, time.time())
            self._follow_checkpoint_age()

    def _pages(self) -> Pages:
        metrics = {"/metrics": self._render_metrics}
        return metrics | (self._page.pages() if self._page else {})

    def _render_metrics(self) -> Answer:
        self._scrapes.count()
        return Answer(self._instruments.render(), CONTENT_TYPE)

    def _set_constants(self, run: PreparedRun) -> None:
        instruments, versions = self._instruments, machine.versions()
        instruments.set(
            names.BUILD,
            1,
            version=edgeddl.__version__,
            kernels=kernels.chosen(),
            blas=machine.blas_name(),
            mpi=versions["openmpi"],
            python=versions["python"],
        )
        instruments.set(names.PLANNED_STEPS, run.total_steps)
        instruments.set(names.PLANNED_EPOCHS, run.config.epochs)
        instruments.follow(names.RESIDENT_BYTES, machine.resident_memory_bytes)
        instruments.follow(names.PEAK_BYTES, machine.peak_memory_bytes)
        if (ratio := run.exchange.compression_ratio) is not None:
            instruments.set(names.COMPRESSION_RATIO, ratio)
        if run.communicator.rank == 0:
            instruments.set(names.WORLD_SIZE, run.communicator.size)
            self._follow_checkpoint_age()

    def _follow_checkpoint_age(self) -> None:
        since = time.monotonic()
        self._instruments.follow(names.CHECKPOINT_AGE, lambda: time.monotonic() - since)

    def _set_evaluation(self, state: RunState) -> None:
        evaluated = [entry for entry in state.history if "accuracy" in entry]
        if evaluated:
            self._instruments.set(names.ACCURACY, evaluated[-1]["accuracy"])
            self._instruments.set(names.TEST_LOSS, evaluated[-1]["test_loss"])

    def _observe_bucket(self, summed: SummedBucket) -> None:
        """Called by the exchange's threads."""
        if summed.bytes_sent:  # 0: one rank, or local steps
            self._instruments.observe(names.BUCKET_SECONDS, summed.ended - summed.started)
            self._instruments.add(names.ALLREDUCES, 1)

    def _count_bytes_sent(self) -> None:
        sent = self._exchange.bytes_sent
        if sent > self._bytes_sent:
            self._instruments.add(names.SENT_BYTES, sent - self._bytes_sent)
            self._bytes_sent = sent

    def _set_window(self, report: StepReport) -> None:
        instruments, window, rank = self._instruments, self._window, self._communicator.rank
        busy = report.busy_seconds
        instruments.add(names.STRAGGLER_SECONDS, max(busy) - busy[rank])
        instruments.set(names.IMAGES_PER_SECOND, window.images_per_second_by_rank[rank])
        if self._page is None:
            return
        instruments.set(names.CLUSTER_IMAGES_PER_SECOND, window.images_per_second)
        if window.efficiency is not None:
            instruments.set(names.CLUSTER_EFFICIENCY, window.efficiency)
        instruments.set(names.SLOWEST_RANK, window.slowest_rank)
        for other, seconds in enumerate(window.busy_seconds):
            host = self._communicator.hosts[other]
            instruments.set(names.RANK_BUSY_SECONDS, seconds, rank=str(other), host=host)
        self._page.add(self._position(report), report.loss, window)

    def _position(self, report: StepReport) -> dict[str, float | None]:
        """The position of the run, for the live page."""
        state = report.state
        accuracies = [entry["accuracy"] for entry in state.history if "accuracy" in entry]
        return {
            "step": state.step,
            "planned_steps": self._pace.planned_steps,
            "epoch": state.progress(self._epoch_images),
            "planned_epochs": self._config.epochs,
            "loss": report.loss,
            "accuracy": accuracies[-1] if accuracies else None,
            "learning_rate": report.learning_rate,
            "remaining_seconds": self._pace.remaining_seconds(state.step),
        }


class _Pace:
    """Estimates the remaining time from the pace so far, including evaluations and checkpoints."""

    def __init__(self, first_step: int, planned_steps: int) -> None:
        self.planned_steps = planned_steps
        self._first_step = first_step
        self._started = time.monotonic()

    def remaining_seconds(self, step: int) -> float:
        pace = (time.monotonic() - self._started) / max(step - self._first_step, 1)
        return pace * max(self.planned_steps - step, 0)
