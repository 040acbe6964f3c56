"""Sums gradients and a few scalars over all ranks.

A training step calls, in this order:

    begin_step(step)
    for each micro-batch:
        sum_scalars(scalars)       before the last one, or once if there are none
        sink.begin_backward() ... sink.end_backward()
    ready_ranges()                 parameters that can be updated now
    end_step(arrays)
    late_ranges()                  the rest, before the next backward pass

Gradients are summed, not averaged: each rank weights its loss by its share of the step's images. So
the sum is the exact mean over all images, even if ranks have different numbers of images.

`make_exchange` builds the exchange that the options of a run describe.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, NamedTuple, Protocol

import numpy as np

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ITEM_BYTES, Bucket
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.policies import FactoredGradients, Policy

# Elements start to stop (excluded) of the flat parameters.
Range = tuple[int, int]


class Step(Protocol):
    """The batch of a step, as far as an exchange is concerned."""

    @property
    def images(self) -> int:
        """On all ranks."""

    @property
    def own_images(self) -> int:
        """On this rank."""

    @property
    def micro_batches(self) -> Sized:
        """This rank's backward passes; none if it has no images."""

    @property
    def ends_epoch(self) -> bool: ...


class SummedBucket(NamedTuple):
    """One call of the policy, as observers see it; times are those of time.perf_counter."""

    bucket: Bucket
    gradient_bytes: int  # of the part that was summed
    bytes_sent: int
    started: float
    ended: float


# Called by the thread that has summed the bucket.
Observer = Callable[[SummedBucket], None]


class BackwardSink(Protocol):
    """Receives the gradients of backward passes.

    Extends functions.GradientSink structurally; comm may not import functions.
    """

    def begin_backward(self) -> None: ...

    def view_for(self, parameter: Any) -> np.ndarray | None:
        """Where to write a parameter's gradient; None leaves it to Chainer."""

    def ready(self, parameter: Any) -> None:
        """A parameter's gradient has been written."""

    def end_backward(self, gradients: Mapping[str, np.ndarray | None]) -> None:
        """`gradients`: all gradients by name, including those already `ready`."""


class GradientExchange(ABC):
    """Sums the gradients of a step over all ranks.

    buckets: the parts that are summed separately
    late_parameters: names of the parameters in `late_ranges`
    overlaps_backward: whether sums travel during the backward pass
    round_steps: ranks hold the same parameters after this many steps, and at the end of an epoch
    """

    overlaps_backward = False
    round_steps = 1

    def __init__(self, communicator: Communicator, arena: Arena, policy: Policy) -> None:
        self.communicator = communicator
        self.arena = arena
        self.policy = policy
        self.buckets = arena.plan.buckets
        self.bytes_sent = 0
        self.observers: list[Observer] = []
        self.late_parameters: Sequence[str] = ()

    def open(self) -> None:  # noqa: B027 - optional
        """Collective: prepare for the first step.

        Call it after the all-reduce algorithm has been chosen.
        """

    @property
    @abstractmethod
    def sink(self) -> BackwardSink:
        """Where backward passes of this step write gradients."""

    @abstractmethod
    def begin_step(self, step: Step) -> int:
        """Begin a step; returns the number of images that its gradient is the mean of."""

    @abstractmethod
    def sum_scalars(self, scalars: np.ndarray) -> None:
        """Sum a few numbers over all ranks, in place; complete after `ready_ranges`."""

    @abstractmethod
    def ready_ranges(self) -> Iterable[Range]:
        """Wait for the sums of all buckets but a late one, and return what can be updated."""

    def late_ranges(self) -> Iterable[Range]:
        """Wait for the sum of the late bucket, and return what can be updated now."""
        return ()

    def end_step(self, arrays: Sequence[np.ndarray]) -> bool:
        """End a step; returns whether all ranks hold the same parameters.

        `arrays`: the flat arrays that the optimizer has updated.
        """
        return True

    def close(self) -> None:  # noqa: B027 - optional
        """Release resources; no further step is allowed."""

    def factored_gradients(self) -> Sequence[FactoredGradients]:
        """Sums that stay factored: the optimizer multiplies the factors.

        The same objects in every step.
        """
        return ()

    @property
    @abstractmethod
    def description(self) -> str:
        """What travels and how, as the start-up table shows it."""

    def payloads(self) -> list[int]:
        """The bytes of each all-reduce in `round_steps` steps."""
        return [size for bucket in self.buckets for size in self.policy.payloads(bucket)]

    def buffer_bytes(self) -> int:
        """The memory that the exchange takes besides the arena."""
        return sum(self.policy.buffer_bytes(bucket) for bucket in self.buckets)

    @property
    def compression_ratio(self) -> float | None:
        """Uncompressed bytes divided by bytes sent; None if gradients are not sent."""
        sent = sum(self.payloads())
        whole = sum(bucket.stop - bucket.start for bucket in self.buckets) * ITEM_BYTES
        return whole / sent if whole and sent and self.communicator.size > 1 else None

    def state(self) -> dict[str, np.ndarray]:
        """What the next step needs besides parameters, for a checkpoint: collective.

            NAME         shared by all ranks
            rank_NAME    of every rank: [rank][...]

        On rank 0, which writes checkpoints; the other ranks get nothing.
        """
        ranks, is_root, arrays = self.communicator.size, self.communicator.rank == 0, {}
        for name, own in self.policy.rank_state().items():
            # On every rank, the state of all ranks would take N times the memory.
            by_rank = np.zeros((ranks, *own.shape), own.dtype) if is_root else None
            self.communicator.gather_array(own, by_rank)
            if by_rank is not None:
                arrays[f"rank_{name}"] = by_rank
        return {**arrays, **self.policy.shared_state()} if is_root else {}

    def expected_state(self, ranks: int) -> dict[str, np.ndarray]:
        """Arrays of the names and shapes that `state` has with this many ranks."""
        by_rank = {
            f"rank_{name}": np.broadcast_to(own, (ranks, *own.shape))
            for name, own in self.policy.rank_state().items()
        }
        return {**by_rank, **self.policy.shared_state()}

    def load_state(self, arrays: Mapping[str, np.ndarray] | None, ranks: int) -> None:
        """Restore the state that `ranks` ranks had: collective; only rank 0 passes the arrays."""
        size, same_ranks = self.communicator.size, ranks == self.communicator.size
        for name, own in self.policy.rank_state().items():
            part = np.zeros_like(own)
            for rank in range(ranks if same_ranks else 1):
                if arrays is not None:
                    by_rank = arrays[f"rank_{name}"]
                    part[...] = by_rank[rank] if same_ranks else by_rank.sum(axis=0) / size
                self.communicator.broadcast(part)
                if rank == self.communicator.rank or not same_ranks:
                    own[...] = part
        for name, shared in self.policy.shared_state().items():
            if arrays is not None:
                shared[...] = arrays[name]
            self.communicator.broadcast(shared)

    def sum_bucket(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        """Have the policy sum a bucket, or a part of it, and notify observers: collective."""
        started, sent = time.perf_counter(), 0
        if communicator.size > 1:
            sent = self.policy.sum(communicator, bucket, gradients)
        if self.observers:
            ended = time.perf_counter()
            summed = SummedBucket(bucket, gradients.nbytes, sent, started, ended)
            for observe in self.observers:
                observe(summed)
        return sent
