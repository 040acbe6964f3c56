"""A quick look at computing and links before the first step: who gets how much, what it costs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from edgeddl.chainer_compat import F, chainer
from edgeddl.comm.model import LinkModel
from edgeddl.comm.tuning import RingFrom, choose_ring_from, measure_link, ring_between
from edgeddl.training.balance import rebalanced
from edgeddl.training.startup import IMAGE_SHAPE, PreparedRun
from edgeddl.training.statistics import RunningStatistics

# Enough for kernels to run at their speed, and over in a second on a board.
IMAGES = 8


@dataclass(frozen=True)
class Forecast:
    """The links as measured, and the seconds of a step for communication and for computing."""

    link: LinkModel
    allreduce_seconds: float
    compute_seconds: float

    @property
    def share(self) -> float:
        """Communication of a step over its computing: what backward has to hide."""
        return self.allreduce_seconds / self.compute_seconds


def choose_allreduce(run: PreparedRun) -> None:
    """Collective: the algorithm that --allreduce names, or the one that suits the links.

    A resumed run goes on with what was chosen at its start: another order of summation would make
    other bits. Where there were no links, or neighbours could not connect, nothing was chosen, and
    it tries again: there may be some by then, and their lack must not slow a run down to its end.
    """
    communicator, forced = run.communicator, run.config.allreduce
    if forced != "auto":
        communicator.choose(lambda size: forced)
        return
    half = run.config.compression == "fp16"  # which only the ring can add
    if half or run.state.ring_from_bytes is None:
        ring = ring_between(communicator.size) if half else choose_ring_from(communicator)
        run.state.ring_from_bytes = ring.size_bytes
    communicator.choose(RingFrom(run.state.ring_from_bytes))


def make_forecast(run: PreparedRun) -> Forecast | None:
    """Collective, after choose_allreduce; None where there are no links.

    Shares that are to follow the speed of the ranks do so from here on.
    """
    if run.communicator.medium not in ("memory", "network"):
        return None
    link = measure_link(run.communicator)
    image_seconds = run.communicator.allgather(_image_seconds(run))
    if run.config.balance == "auto" and len(set(run.state.shares)) == 1:  # nothing known as yet
        run.state.shares = rebalanced(run.state.shares, _seconds(run, image_seconds))
    return Forecast(
        link,
        allreduce_seconds=_allreduce_seconds(run, link),
        compute_seconds=max(_seconds(run, image_seconds)),
    )


def _seconds(run: PreparedRun, image_seconds: list[float]) -> list[float]:
    """Of a step's computing, by rank."""
    return [share * each for share, each in zip(run.state.shares, image_seconds, strict=True)]


def _allreduce_seconds(run: PreparedRun, link: LinkModel) -> float:
    """Of a step, one all-reduce after the other."""
    ranks, config = run.communicator.size, run.config
    if config.local_steps > 1:  # parameters and momentum, once a round
        round_seconds = 2 * link.allreduce_seconds(run.arena.parameters.nbytes, ranks)
        return round_seconds / config.local_steps
    buckets = run.arena.plan.buckets
    if config.communicator == "naive":
        buckets = run.arena.plan.single_slots
    payloads = [size for bucket in buckets for size in run.bucket_sum.payloads(bucket)]
    return sum(link.allreduce_seconds(size, ranks) for size in payloads)


def _image_seconds(run: PreparedRun) -> float:
    """Forward and backward of blank images; the first time touches memory and is left out."""
    blank = np.zeros((IMAGES, *IMAGE_SHAPE), np.float32)
    statistics = RunningStatistics(run.model)
    before = statistics.flat()
    seconds = []
    with chainer.using_config("train", True):
        for _ in range(3):
            started = time.perf_counter()
            F.sum(run.model(blank)).backward()
            run.model.cleargrads()
            seconds.append(time.perf_counter() - started)
    statistics.set_flat(before)
    return min(seconds[1:]) / IMAGES
