"""Tells Prometheus, and people at a browser, how a run goes: `--metrics-port`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import edgeddl
from edgeddl import kernels, machine
from edgeddl.comm.agreement import together
from edgeddl.comm.bucket import ITEM_BYTES, Bucket
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.compression import BucketSum
from edgeddl.config import metrics_address
from edgeddl.log import logger
from edgeddl.metrics import names
from edgeddl.metrics.instruments import CONTENT_TYPE, Instruments
from edgeddl.metrics.listening import listen
from edgeddl.metrics.server import Answer, MetricsServer, Pages
from edgeddl.training.extensions.checkpointing import Checkpointing
from edgeddl.training.extensions.live_page import LivePage
from edgeddl.training.local_steps import LocalSteps
from edgeddl.training.loop import StepReport
from edgeddl.training.recent import RecentSteps
from edgeddl.training.startup import PreparedRun
from edgeddl.training.state import RunState


@contextmanager
def metering(
    run: PreparedRun, local_steps: LocalSteps | None, checkpointing: Checkpointing
) -> Iterator[Metering | None]:
    """Serve on every rank within this block, or end with one message; None without --metrics-port.

    Collective.
    """
    if run.config.metrics_port is None:
        yield None
        return
    meter = Metering(run, local_steps, checkpointing)
    try:
        server = together(run.communicator, meter.serve)
        if run.communicator.rank == 0:
            place = f"http://{server.address}:{server.port}"
            logger.info("live page: %s/  metrics: %s/metrics", place, place)
        yield meter
    finally:
        meter.close()


def local_rank(communicator: Communicator) -> int:
    """A rank's number among those of its host."""
    if communicator.medium == "threads":  # whose hosts are threads of one machine
        return communicator.rank
    return communicator.hosts[: communicator.rank].count(communicator.host)


class Metering:
    """On every rank. Values are kept ready by the steps: a scrape reads them and waits for none.

    What rank 0 tells of the others comes from what ranks tell each other with the loss: metering
    adds no message, and a run takes the same course with it as without.
    """

    def __init__(
        self, run: PreparedRun, local_steps: LocalSteps | None, checkpointing: Checkpointing
    ) -> None:
        communicator = run.communicator
        name = communicator.allgather(run.folder and run.folder.path.resolve().name)[0]
        self._instruments = Instruments(
            run=name, rank=str(communicator.rank), host=communicator.host
        )
        self._config = run.config
        self._communicator = communicator
        self._epoch_images = run.epoch_images
        self._local_steps = local_steps
        self._sent_by_local_steps = 0
        self._checkpointing = checkpointing
        self._saved_step: int | None = None
        self._pace = _Pace(run.state.step, run.total_steps)
        self._recent = RecentSteps()
        self._page = LivePage(name, communicator.hosts) if communicator.rank == 0 else None
        self._server: MetricsServer | None = None
        self._tell_constants(run)
        self._tell_evaluation(run.state)

    def serve(self) -> MetricsServer:
        """Listen on this rank's port."""
        communicator, config = self._communicator, self._config
        assert config.metrics_port is not None
        listener = listen(
            metrics_address(config.metrics_address),
            config.metrics_port + local_rank(communicator),
            option="--metrics-port",
            who=f"rank {communicator.rank}'s metrics",
        )
        self._server = MetricsServer(listener, self._pages())
        return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def timed(self, bucket_sum: BucketSum) -> BucketSum:
        """The same sums, with their times and bytes told."""
        return _TimedSum(bucket_sum, self._instruments)

    def on_step(self, report: StepReport) -> None:
        tell, state = self._instruments, report.state
        tell.add(names.STEPS, 1)
        tell.add(names.SAMPLES, report.own_images)
        tell.observe(names.STEP_SECONDS, report.seconds)
        for phase, seconds in report.phase_seconds.items():
            tell.observe(names.PHASE_SECONDS, seconds, phase=phase)
        tell.set(names.LOSS, report.loss)
        tell.set(names.LEARNING_RATE, report.learning_rate)
        tell.set(names.STEP, state.step)
        tell.set(names.EPOCH, state.progress(self._epoch_images))
        tell.set(names.REMAINING_SECONDS, self._pace.remaining_seconds(state.step))
        tell.set(names.BATCH_IMAGES, state.shares[self._communicator.rank])
        self._tell_local_steps()
        self._recent.add(report.ranks)
        if len(self._recent):
            self._tell_recent(report)

    def on_epoch(self, state: RunState) -> None:
        self._tell_evaluation(state)

    def on_pause(self, state: RunState, *, final: bool) -> None:
        """After the checkpoint's turn: only rank 0 knows of one that is on the disk."""
        if self._checkpointing.saved_step != self._saved_step:
            self._saved_step = self._checkpointing.saved_step
            self._instruments.set(names.CHECKPOINT_TIME, time.time())
            self._follow_checkpoint_age()

    def _pages(self) -> Pages:
        metrics = {"/metrics": lambda: Answer(self._instruments.render(), CONTENT_TYPE)}
        return metrics | (self._page.pages() if self._page else {})

    def _tell_constants(self, run: PreparedRun) -> None:
        tell, versions = self._instruments, machine.versions()
        tell.set(
            names.BUILD,
            1,
            version=edgeddl.__version__,
            kernels=kernels.chosen(),
            blas=machine.blas_name(),
            mpi=versions["openmpi"],
            python=versions["python"],
        )
        tell.set(names.PLANNED_STEPS, run.total_steps)
        tell.set(names.PLANNED_EPOCHS, run.config.epochs)
        tell.follow(names.RESIDENT_BYTES, machine.resident_memory_bytes)
        tell.follow(names.PEAK_BYTES, machine.peak_memory_bytes)
        ratio = compression_ratio(run)
        if ratio is not None:
            tell.set(names.COMPRESSION_RATIO, ratio)
        if run.communicator.rank == 0:
            tell.set(names.WORLD_SIZE, run.communicator.size)
            self._follow_checkpoint_age()

    def _follow_checkpoint_age(self) -> None:
        since = time.monotonic()
        self._instruments.follow(names.CHECKPOINT_AGE, lambda: time.monotonic() - since)

    def _tell_evaluation(self, state: RunState) -> None:
        evaluated = [entry for entry in state.history if "accuracy" in entry]
        if evaluated:
            self._instruments.set(names.ACCURACY, evaluated[-1]["accuracy"])
            self._instruments.set(names.TEST_LOSS, evaluated[-1]["test_loss"])

    def _tell_local_steps(self) -> None:
        if self._local_steps is not None:
            sent = self._local_steps.bytes_sent
            self._instruments.add(names.SENT_BYTES, sent - self._sent_by_local_steps)
            self._sent_by_local_steps = sent

    def _tell_recent(self, report: StepReport) -> None:
        tell, recent, rank = self._instruments, self._recent, self._communicator.rank
        busy = report.busy_seconds
        tell.add(names.STRAGGLER_SECONDS, max(busy) - busy[rank])
        tell.set(names.IMAGES_PER_SECOND, recent.images_per_second_by_rank[rank])
        if self._page is None:
            return
        tell.set(names.CLUSTER_IMAGES_PER_SECOND, recent.images_per_second)
        if recent.efficiency is not None:
            tell.set(names.CLUSTER_EFFICIENCY, recent.efficiency)
        tell.set(names.SLOWEST_RANK, recent.slowest_rank)
        for other, seconds in enumerate(recent.busy_seconds):
            host = self._communicator.hosts[other]
            tell.set(names.RANK_BUSY_SECONDS, seconds, rank=str(other), host=host)
        self._page.add(self._position(report), report.loss, recent)

    def _position(self, report: StepReport) -> dict[str, float | None]:
        """Where the run stands, for the live page."""
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


def compression_ratio(run: PreparedRun) -> float | None:
    """Bytes of all gradients over those that travel for them; None where none do."""
    plan = run.arena.plan
    buckets = plan.single_slots if run.config.communicator == "naive" else plan.buckets
    sent = sum(sum(run.bucket_sum.payloads(bucket)) for bucket in buckets)
    whole = sum(bucket.stop - bucket.start for bucket in buckets) * ITEM_BYTES
    return whole / sent if sent and run.communicator.size > 1 else None


class _Pace:
    """How long the rest of a run takes at its pace so far, evaluations and checkpoints included."""

    def __init__(self, first_step: int, planned_steps: int) -> None:
        self.planned_steps = planned_steps
        self._first_step = first_step
        self._started = time.monotonic()

    def remaining_seconds(self, step: int) -> float:
        pace = (time.monotonic() - self._started) / max(step - self._first_step, 1)
        return pace * max(self.planned_steps - step, 0)


class _TimedSum:
    """A bucket sum that tells how long it took and what it sent; called by the lanes."""

    def __init__(self, bucket_sum: BucketSum, instruments: Instruments) -> None:
        self._bucket_sum = bucket_sum
        self._instruments = instruments

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        started = time.perf_counter()
        sent = self._bucket_sum(communicator, bucket, gradients)
        if sent:  # alone, or with local steps, there is no all-reduce
            self._instruments.observe(names.BUCKET_SECONDS, time.perf_counter() - started)
            self._instruments.add(names.ALLREDUCES, 1)
            self._instruments.add(names.SENT_BYTES, sent)
        return sent

    def payloads(self, bucket: Bucket) -> list[int]:
        return self._bucket_sum.payloads(bucket)
