"""Worker: training steps of edgeddl's own trainer, as on a single rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from baselines.serve import serve_steps
from baselines.workload import CLASSES, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, make_batch

from bench_kernels.edgeddl_kernels import chosen_kernels, peak_gflops, timed_kernels
from edgeddl.chainer_compat import chainer
from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import plan_buckets
from edgeddl.comm.local import SingleCommunicator
from edgeddl.comm.make_exchange import bucket_bytes, make_exchange
from edgeddl.config import TrainConfig
from edgeddl.data import StepBatch
from edgeddl.kernels.layout import channels_last
from edgeddl.models import build_model, count_macs
from edgeddl.optimizers import MomentumSGD
from edgeddl.training.clock import StepClock
from edgeddl.training.parameters import (
    move_parameters,
    named_parameters,
    observe_parameters,
    plan_segments,
)
from edgeddl.training.updater import Updater


def prepare(batch: int, stem: str) -> Callable[[], Any]:
    """Return a step on images that are already in memory, as the loader thread provides them."""
    x, t = make_batch(batch)
    step_batch = StepBatch(0, 0, batch, [(channels_last(x), t)], ends_epoch=False)
    updater = make_updater(stem, x.shape[1:])
    return lambda: updater.step(step_batch, LEARNING_RATE, False, StepClock())


def make_updater(stem: str, image_shape: tuple[int, ...]) -> Updater:
    """Build the parts of a training run that a step needs."""
    model = build_model("resnet18", stem=stem, classes=CLASSES)
    specs = observe_parameters(model, image_shape, CLASSES)
    config = TrainConfig()
    arena = Arena(plan_buckets(specs, bucket_bytes(config)))
    move_parameters(model, arena)
    segments = plan_segments(arena, WEIGHT_DECAY)
    optimizer = MomentumSGD(
        arena.parameters, arena.gradients, segments, momentum=MOMENTUM, nesterov=False
    )
    exchange = make_exchange(config, SingleCommunicator(), arena, named_parameters(model))
    exchange.open()
    return Updater(model, exchange, optimizer)


def python_share(batch: int, stem: str, steps: int) -> float:
    """Return the fraction of a step outside kernels: Python, Chainer's graph, the exchange."""
    step = prepare(batch, stem)
    step()
    with timed_kernels() as kernel_seconds:
        started = time.perf_counter()
        for _ in range(steps):
            step()
        total = time.perf_counter() - started
    return 1 - sum(kernel_seconds) / total


if __name__ == "__main__":
    chainer.global_config.train = True
    serve_steps(
        prepare,
        chosen_kernels=chosen_kernels,
        peak_gflops=peak_gflops,
        python_share=python_share,
        macs=lambda stem: count_macs(build_model("resnet18", stem=stem, classes=CLASSES)),
    )
