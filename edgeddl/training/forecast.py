"""A quick look at computing and links before the first step: who gets how much, what it costs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from edgeddl.chainer_compat import F, chainer
from edgeddl.comm.bucket import ITEM_BYTES
from edgeddl.comm.communicator import Choice
from edgeddl.comm.model import LinkModel
from edgeddl.comm.tuning import Always, RingFrom, choose_ring_from, measure_link
from edgeddl.training.balance import LEAST_GAIN_AT_FIRST, rebalanced
from edgeddl.training.startup import PreparedRun
from edgeddl.training.statistics import RunningStatistics

# Enough for kernels to run at their speed, and over in a second or two on a board.
IMAGES = 8
# Of computing a step: backward has the gradients of inputs and of parameters, forward one product.
BACKWARD_PART = 2 / 3


@dataclass(frozen=True)
class Forecast:
    """The links as measured, and the seconds of a step for communication and for computing.

    allreduce: by which algorithm, as people read it
    hidden_part: of computing, the part during which gradients travel
    """

    link: LinkModel
    allreduce: str
    allreduce_seconds: float
    compute_seconds: float
    hidden_part: float

    @property
    def step_seconds(self) -> float:
        """Computing, and what of the all-reduces it does not hide."""
        hidden = self.hidden_part * self.compute_seconds
        return self.compute_seconds + max(self.allreduce_seconds - hidden, 0.0)

    @property
    def share(self) -> float:
        """Communication of a step over its computing: what backward has to hide."""
        return self.allreduce_seconds / self.compute_seconds


def choose_allreduce(run: PreparedRun) -> Choice:
    """Collective: the algorithm that --allreduce names, or the one that suits the links.

    A resumed run goes on with what was chosen at its start: another order of summation would make
    other bits. Where there were no links, or neighbours could not connect, nothing was chosen, and
    it tries again: there may be some by then, and their lack must not slow a run down to its end.
    """
    forced = run.config.allreduce
    choice = _ring_from(run) if forced == "auto" else Always(forced)
    run.communicator.choose(choice)
    return choice


def _ring_from(run: PreparedRun) -> RingFrom:
    if run.config.compression == "fp16":  # which only the ring can add
        return RingFrom(0)
    if run.state.ring_from_bytes is None:
        run.state.ring_from_bytes = choose_ring_from(run.communicator).size_bytes
    return RingFrom(run.state.ring_from_bytes)


def measure_computing(run: PreparedRun) -> list[float]:
    """Collective: what an image takes, by rank; nothing where ranks are not processes."""
    if run.communicator.medium == "threads" or run.total_steps == run.state.step:
        return []
    return run.communicator.allgather(_image_seconds(run))


def share_by_speed(run: PreparedRun, image_seconds: list[float]) -> None:
    """The first shares of --balance auto; a resumed run goes on with those it had."""
    if run.config.balance == "auto" and image_seconds and run.state.step == 0:
        seconds = _step_seconds(run, image_seconds)
        run.state.shares = rebalanced(run.state.shares, seconds, LEAST_GAIN_AT_FIRST)


def make_forecast(
    run: PreparedRun, allreduce: Choice, image_seconds: list[float]
) -> Forecast | None:
    """Collective, after all that is chosen by measuring; None where there are no links."""
    if not image_seconds or run.communicator.size == 1:
        return None
    link = measure_link(run.communicator, allreduce)
    return Forecast(
        link,
        str(allreduce),
        allreduce_seconds=_allreduce_seconds(run, link),
        compute_seconds=max(_step_seconds(run, image_seconds)),
        hidden_part=BACKWARD_PART if _overlaps(run) else 0.0,
    )


def remaining_seconds(
    run: PreparedRun, image_seconds: list[float], forecast: Forecast | None
) -> float | None:
    """About how long the run will take: its steps and its evaluations; None if not measured."""
    if not image_seconds:
        return None
    compute = max(_step_seconds(run, image_seconds))
    step = forecast.step_seconds if forecast else compute
    left = run.total_steps - run.state.step
    evaluations = max(left / run.steps_per_epoch / run.config.eval_every, 1.0)
    test_steps = len(run.dataset.test) / run.global_batch
    return left * step + evaluations * test_steps * compute * (1 - BACKWARD_PART)


def _overlaps(run: PreparedRun) -> bool:
    """Whether gradients travel while others are computed."""
    return run.config.communicator == "bucketed" and run.config.local_steps == 1


def _step_seconds(run: PreparedRun, image_seconds: list[float]) -> list[float]:
    """Of a step's computing, by rank."""
    return [share * each for share, each in zip(run.state.shares, image_seconds, strict=True)]


def _allreduce_seconds(run: PreparedRun, link: LinkModel) -> float:
    """Of a step, one all-reduce after the other."""
    ranks, config = run.communicator.size, run.config
    if config.local_steps > 1:  # parameters and momentum, once a round
        trained_bytes = run.arena.plan.trained_length * ITEM_BYTES
        return 2 * link.allreduce_seconds(trained_bytes, ranks) / config.local_steps
    buckets = run.arena.plan.buckets
    if config.communicator == "naive":
        buckets = run.arena.plan.single_slots
    payloads = [size for bucket in buckets for size in run.bucket_sum.payloads(bucket)]
    return sum(link.allreduce_seconds(size, ranks) for size in payloads)


def _image_seconds(run: PreparedRun) -> float:
    """Forward and backward of blank images; the first time touches memory and is left out."""
    blank = np.zeros((IMAGES, *run.dataset.image_shape), np.float32)
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
