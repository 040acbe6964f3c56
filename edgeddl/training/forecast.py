"""Measures computation and links before the first step, to choose shares and predict step times."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from edgeddl.chainer_compat import F, chainer
from edgeddl.comm.communicator import Choice
from edgeddl.comm.model import LinkModel
from edgeddl.comm.tuning import Always, RingFrom, choose_ring_from, measure_link
from edgeddl.training.balance import LEAST_GAIN_AT_FIRST, rebalanced
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.statistics import RunningStatistics

# Enough images for kernels to reach their speed; takes one or two seconds on a board.
IMAGES = 8
# Backward's part of the compute time: it computes two products, for inputs and parameters, forward
# one.
BACKWARD_PART = 2 / 3


@dataclass(frozen=True)
class Forecast:
    """The measured link, and the seconds of a step for communication and for computation.

    allreduce: a description of the algorithm
    hidden_part: the part of the compute time that overlaps with communication
    """

    link: LinkModel
    allreduce: str
    allreduce_seconds: float
    compute_seconds: float
    hidden_part: float

    @property
    def step_seconds(self) -> float:
        """Compute time, and the part of the all-reduces that it does not hide."""
        hidden = self.hidden_part * self.compute_seconds
        return self.compute_seconds + max(self.allreduce_seconds - hidden, 0.0)

    @property
    def share(self) -> float:
        """Communication time over compute time."""
        return self.allreduce_seconds / self.compute_seconds


def choose_allreduce(run: PreparedRun) -> Choice:
    """Collective: the algorithm that --allreduce names, or the fastest one for the links.

    A resumed run keeps the choice of its start, because another order of summation would change
    bits. If there were no links, or neighbours could not connect, nothing was chosen. The run then
    tries again, so that a temporary failure does not slow it down to its end.
    """
    forced = run.config.allreduce
    choice = _ring_from(run) if forced == "auto" else Always(forced)
    run.communicator.choose(choice)
    return choice


def _ring_from(run: PreparedRun) -> RingFrom:
    if run.exchange.policy.needs_ring:
        return RingFrom(0)
    if run.state.ring_from_bytes is None:
        run.state.ring_from_bytes = choose_ring_from(run.communicator).size_bytes
    return RingFrom(run.state.ring_from_bytes)


def measure_computing(run: PreparedRun) -> list[float]:
    """Collective: the compute time of an image by rank; empty if ranks are threads."""
    if run.communicator.medium == "threads" or run.total_steps == run.state.step:
        return []
    return run.communicator.allgather(_image_seconds(run))


def share_by_speed(run: PreparedRun, image_seconds: list[float]) -> None:
    """Set the first shares of --balance auto; a resumed run keeps its own."""
    if run.config.balance == "auto" and image_seconds and run.state.step == 0:
        seconds = _step_seconds(run, image_seconds)
        run.state.shares = rebalanced(run.state.shares, seconds, LEAST_GAIN_AT_FIRST)


def make_forecast(
    run: PreparedRun, allreduce: Choice, image_seconds: list[float]
) -> Forecast | None:
    """Collective: the prediction for the choices made before; None if there are no links."""
    if not image_seconds or run.communicator.size == 1:
        return None
    link = measure_link(run.communicator, allreduce)
    return Forecast(
        link,
        str(allreduce),
        allreduce_seconds=_allreduce_seconds(run, link),
        compute_seconds=max(_step_seconds(run, image_seconds)),
        hidden_part=BACKWARD_PART if run.exchange.overlaps_backward else 0.0,
    )


def remaining_seconds(
    run: PreparedRun, image_seconds: list[float], forecast: Forecast | None
) -> float | None:
    """The estimated time of all steps and evaluations; None if it was not measured."""
    if not image_seconds:
        return None
    compute = max(_step_seconds(run, image_seconds))
    step = forecast.step_seconds if forecast else compute
    left = run.total_steps - run.state.step
    evaluations = max(left / run.steps_per_epoch / run.config.eval_every, 1.0)
    test_steps = len(run.dataset.test) / run.global_batch
    return left * step + evaluations * test_steps * compute * (1 - BACKWARD_PART)


def _step_seconds(run: PreparedRun, image_seconds: list[float]) -> list[float]:
    """The compute time of a step, by rank."""
    return [share * each for share, each in zip(run.state.shares, image_seconds, strict=True)]


def _allreduce_seconds(run: PreparedRun, link: LinkModel) -> float:
    """The mean over steps, if all-reduces follow one another."""
    exchange, ranks = run.exchange, run.communicator.size
    seconds = sum(link.allreduce_seconds(size, ranks) for size in exchange.payloads())
    return seconds / exchange.round_steps


def _image_seconds(run: PreparedRun) -> float:
    """The time of forward and backward without the first pass, which touches new memory."""
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
