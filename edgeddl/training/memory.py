"""Predicts each rank's peak memory before the first step, and refuses a batch that does not fit.

The kernel kills a rank that takes more memory than its host has, and the rank cannot report it.
Ranks on the same host share its memory. Real runs peaked at 0 to 8 % more than predicted, with
accumulation at 11 to 15 % more (ResNet-18 and ResNet-9, batch 4 to 128, 1 and 2 ranks, x86_64).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgeddl import machine
from edgeddl.chainer_compat import chainer
from edgeddl.comm.agreement import describe_ranks
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import GradientExchange
from edgeddl.config import TrainConfig
from edgeddl.errors import MemoryShortage
from edgeddl.hardware import allowed_bytes
from edgeddl.log import logger
from edgeddl.training.balance import starting_shares
from edgeddl.training.evaluator import BATCH_SIZE as EVALUATION_BATCH
from edgeddl.training.pass_memory import BlankPasses, pass_bytes, without_trace

WARNING_MARGIN = 0.15  # of the peak: predictions were too low by at most this
# Resident memory includes pages of files, which the kernel drops before it kills a process: a run
# that was predicted to need 6 % more than its host had did train.
REFUSAL_MARGIN = -0.1
FRAGMENTATION = 1.05  # arrays of a pass leave holes in the heap
LOADED_STEPS = 2  # one in use, one being prepared
SNAPSHOT_COPIES = 3  # of the parameters, while a checkpoint is made
MIB = 2**20


@dataclass(frozen=True)
class MemoryPrediction:
    """Bytes of one rank: resident now, at its peak, and available on its host (None: unknown)."""

    resident_bytes: int
    peak_bytes: int
    allowed_bytes: int | None = None

    @property
    def most_bytes(self) -> int | None:
        """The most memory that the rank can use."""
        return None if self.allowed_bytes is None else self.resident_bytes + self.allowed_bytes

    @property
    def used_fraction(self) -> float:
        """The peak as a part of the most memory."""
        return self.peak_bytes / self.most_bytes if self.most_bytes else 0.0

    def fits(self, margin: float) -> bool:
        return self.used_fraction * (1 + margin) <= 1


def check_memory(
    config: TrainConfig,
    model: chainer.Chain,
    exchange: GradientExchange,
    *,
    image_shape: tuple[int, ...],
    train_images: int,
) -> list[MemoryPrediction]:
    """Collective: every rank's prediction; an error or a warning if one does not fit.

    Empty if ranks are threads of one process, which share their memory.
    """
    communicator = exchange.communicator
    if communicator.medium == "threads":
        return []
    batch = _largest_micro_batch(config, communicator, train_images)
    with without_trace(model):
        passes = BlankPasses(model, exchange.arena, image_shape)
        image_bytes = 4 * math.prod(image_shape)
        peak_bytes = _peak_by_batch(config, exchange, passes, image_bytes)
        own = MemoryPrediction(machine.resident_memory_bytes(), peak_bytes(batch))
        peers = communicator.hosts.count(communicator.host)
        communicator.allgather(None)  # all ranks have allocated their arrays
        left = allowed_bytes()
        allowed = None if left is None else left // peers
        own = replace(own, allowed_bytes=allowed)
        everyone = communicator.allgather(own)
        tight = [rank for rank, each in enumerate(everyone) if not each.fits(WARNING_MARGIN)]
        if not tight:
            return everyone
        fitting = min(communicator.allgather(_largest_fitting(peak_bytes, own, batch)))
    short = [rank for rank in tight if not everyone[rank].fits(REFUSAL_MARGIN)]
    message = _describe(config, communicator, everyone, short or tight)
    hint = _hint(config, fitting)
    if short and config.memory_check == "refuse":
        raise MemoryShortage(message, hint=hint)
    if communicator.rank == 0:
        logger.warning("%s\n  hint: %s", message, hint)
    return everyone


def _largest_micro_batch(config: TrainConfig, communicator: Communicator, images: int) -> int:
    even_share = config.batch_size * config.accumulation
    shares = starting_shares(config.balance, even_share, communicator.size, [])
    share = min(shares[communicator.rank], images)
    return max(-(-share // config.accumulation), min(config.batch_size, share), 1)


def _peak_by_batch(
    config: TrainConfig, exchange: GradientExchange, passes: BlankPasses, image_bytes: int
) -> Callable[[int], int]:
    """This rank's peak memory for any micro-batch."""
    evaluation = pass_bytes(passes.evaluate, EVALUATION_BATCH)
    parameters = exchange.arena.parameters.nbytes
    constant = machine.used_memory_bytes()
    if exchange.communicator.size > 1:
        constant += parameters + exchange.buffer_bytes()  # the first: receive buffers

    def peak_bytes(batch: int) -> int:
        share = max(config.batch_size * config.accumulation, batch)
        loaded = LOADED_STEPS * share * image_bytes
        added = parameters if batch < share else 0  # gradients of a single micro-batch
        most = max(pass_bytes(passes.train, batch), evaluation, SNAPSHOT_COPIES * parameters)
        return constant + loaded + added + round(most * FRAGMENTATION)

    return peak_bytes


def _largest_fitting(peak_bytes: Callable[[int], int], own: MemoryPrediction, batch: int) -> int:
    """The largest micro-batch that fits with the warning margin, or is not refused; 0 if none."""
    one_image = replace(own, peak_bytes=peak_bytes(1))
    margin = WARNING_MARGIN if one_image.fits(WARNING_MARGIN) else REFUSAL_MARGIN

    def fits(size: int) -> bool:
        return replace(own, peak_bytes=peak_bytes(size)).fits(margin)

    fitting, too_large = 0, batch + 1
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        fitting, too_large = (middle, too_large) if fits(middle) else (fitting, middle)
    return fitting


def _describe(
    config: TrainConfig,
    communicator: Communicator,
    everyone: list[MemoryPrediction],
    ranks: list[int],
) -> str:
    lines = [
        f"rank {rank} on {communicator.hosts[rank]} needs about"
        f" {everyone[rank].peak_bytes / MIB:.0f} MiB,"
        f" and has {(everyone[rank].most_bytes or 0) / MIB:.0f} MiB"
        for rank in ranks[:8]
    ]
    if len(ranks) > len(lines):
        lines.append(f"and so do {describe_ranks(ranks[len(lines) :])}")
    shared = len(set(communicator.hosts)) < communicator.size
    sharing = " (ranks on the same host share its memory)" if shared else ""
    joined = "\n  ".join(lines)
    return f"--batch-size {config.batch_size} may not fit into memory{sharing}:\n  {joined}"


def _hint(config: TrainConfig, fitting: int) -> str:
    if fitting == 0:
        return "not even one image fits: use fewer ranks per host, a smaller model or more memory"
    return f"the largest batch that fits is {fitting}: {smaller_batch(config, fitting)}"


def smaller_batch(config: TrainConfig, most: int) -> str:
    """Options with micro-batches of at most `most` images and the same global batch."""
    share = config.batch_size * config.accumulation
    accumulation = next(n for n in range(-(-share // most), share + 1) if share % n == 0)
    options = f"--batch-size {share // accumulation} --accumulation {accumulation}"
    if config.lr_scaling == "linear":  # which multiplies by the accumulation
        options += f" --lr {config.lr * config.accumulation / accumulation:g}"
    return f"use {options} (the same images and learning rate per step)"
