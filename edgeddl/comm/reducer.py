"""Sums gradients over all ranks while backward is still producing them.

    main thread    backward ──gW──gW──gW──gW──gW──gW── wait ── update
                               │       │          │     ▲
    lane 0                     └─bucket 0 ────────┴─bucket 2
    lane 1                             └─bucket 1 ──────┘

A function writes a gradient straight into its view of a flat bucket and calls `ready`. When the
last gradient of a bucket is there, the bucket goes to a lane: a thread with a communicator of its
own, which during a step are the only ones to call collectives. Buckets leave in the order of the
plan and take the lanes in turn, so every rank sends the same ones in the same order on each lane,
whatever its timing. Where one lane waits for the first or last messages of its bucket, the other
has some to send: the link does not rest between buckets.

One bucket may be late: it leaves when all others are there, though its gradients may have been the
first, and `wait` leaves it out. The next step may begin meanwhile, and the link works on.

Gradients are summed, not averaged: each rank weighs its loss by its share of the images of the
step, so the sum is the exact mean over all images also when ranks have different numbers of them.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import Bucket, Use
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.compression import BucketSum
from edgeddl.errors import CommunicationError
from edgeddl.log import start_thread

LANES = 2
# Something for a lane to do; returns the bytes it has sent.
Job = Callable[[Communicator], int]


class Reducer(Protocol):
    """Takes a step's gradients (a gradient sink) and sums them over all ranks.

    A step is begin_step, then for each micro-batch begin_backward ... end_backward, then wait, then
    wait_late, for which there is time until the next step's first backward or begin_step(0).
    """

    bytes_sent: int

    def begin_step(self, micro_batches: int) -> None:
        """A new step with this many backward passes on this rank; none when it has no images."""

    def send_scalars(self, scalars: np.ndarray) -> None:
        """Sum a few numbers over all ranks; they are there after `wait`."""

    def begin_backward(self) -> None:
        """A backward pass begins."""

    def view_for(self, parameter: Any) -> np.ndarray | None:
        """Where to write a parameter's gradient."""

    def ready(self, parameter: Any) -> None:
        """A parameter's gradient is written."""

    def end_backward(self, gradients: Mapping[str, np.ndarray | None]) -> None:
        """A backward pass has ended; `gradients` are all there are, by name, also those `ready`."""

    def wait(self) -> None:
        """Return when there are the sums over all ranks, but for those of the late bucket."""

    def wait_late(self) -> None:
        """Return when those of the late bucket are, too."""

    def close(self) -> None:
        """No step will follow."""


def used_twice(name: str) -> CommunicationError:
    """The error for a graph that the bucketed reducer cannot train: it changes from step to step.

    A first gradient could be on its way before the second is there.
    """
    return CommunicationError(
        f"this step uses parameter {name} more than once, the pass at start-up used it once",
        hint="use the same layers in every forward pass, or train with --communicator naive",
    )


class BucketReducer:
    """Buckets, summed by communication threads while backward goes on."""

    def __init__(
        self,
        communicator: Communicator,
        arena: Arena,
        parameters: Mapping[str, Any],
        bucket_sum: BucketSum,
        late: Bucket | None = None,
        late_parts: int = 1,
    ) -> None:
        self.bytes_sent = 0
        self._arena = arena
        self._bucket_sum = bucket_sum
        self._parameters = dict(parameters)  # kept alive: an id may be used again
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        specs = [slot.spec for slot in arena.plan.slots]
        self._views = {spec.name: arena.gradient(spec.name) for spec in specs}
        self._shared = {spec.name for spec in specs if spec.use is Use.SHARED}
        self._bucket_of = {
            slot.spec.name: index
            for index, bucket in enumerate(arena.plan.buckets)
            for slot in bucket.slots
        }
        self._late = late
        self._late_parts = late_parts  # that are summed by themselves, on a lane each
        self._passes_left = 0
        self._first_pass = True
        self._written: dict[str, np.ndarray] = {}
        self._missing: list[int] = []  # by bucket: gradients not there yet
        self._launched = 0  # buckets handed to lanes
        self._lanes = [
            _Lane(lane, f"lane {number}") for number, lane in enumerate(communicator.lanes(LANES))
        ]
        self._jobs = 0  # of this step
        self._in_time, self._too_late = _Outcomes(), _Outcomes()

    # The main thread

    def begin_step(self, micro_batches: int) -> None:
        self._passes_left = micro_batches
        self._first_pass = True
        self._missing = [len(bucket.slots) for bucket in self._arena.plan.buckets]
        self._launched = self._jobs = 0
        if micro_batches == 0:
            self._arena.gradients.fill(0)
            self._missing = [0] * len(self._missing)

    def send_scalars(self, scalars: np.ndarray) -> None:
        self._do(partial(_sum_scalars, scalars), self._in_time)

    def begin_backward(self) -> None:
        self._written = {}

    def view_for(self, parameter: Any) -> np.ndarray | None:
        name = self._names.get(id(parameter))
        if name is None or name in self._shared:
            return None  # Chainer adds its gradients up, and gives the sum to end_backward
        if name in self._written:
            raise used_twice(name)
        # A later pass adds to what the first has left in the bucket.
        view = self._views[name] if self._first_pass else np.empty_like(self._views[name])
        self._written[name] = view
        return view

    def ready(self, parameter: Any) -> None:
        name = self._names[id(parameter)]
        if not self._first_pass:
            self._views[name] += self._written[name]
        self._count_ready(name)

    def end_backward(self, gradients: Mapping[str, np.ndarray | None]) -> None:
        for name, view in self._views.items():
            gradient = gradients.get(name)
            if name in self._written:
                if gradient is not None and gradient is not self._written[name]:
                    raise used_twice(name)  # by a function that knows nothing of views, too
                continue
            if self._first_pass:
                view[...] = 0 if gradient is None else gradient
            elif gradient is not None:
                view += gradient
            self._count_ready(name)
        self._first_pass = False
        self._passes_left -= 1

    def wait(self) -> None:
        self._launch_complete_buckets()
        self.bytes_sent += self._in_time.collect()
        if self._late is not None:
            # Not before: those that are waited for would have to share the link with it.
            gradients = self._arena.flat_gradient(self._late)
            for part in np.array_split(gradients, self._late_parts):
                self._submit(self._late, part, self._too_late)

    def wait_late(self) -> None:
        self.bytes_sent += self._too_late.collect()

    def close(self) -> None:
        # Without waiting: after a failure a lane may be in a collective that never ends.
        for lane in self._lanes:
            lane.end()

    def _count_ready(self, name: str) -> None:
        if self._passes_left == 1:
            bucket = self._bucket_of[name]
            self._missing[bucket] -= 1
            if not self._missing[bucket]:
                self._launch_complete_buckets()

    def _launch_complete_buckets(self) -> None:
        buckets = self._arena.plan.buckets
        while self._launched < len(buckets) and self._missing[self._launched] == 0:
            bucket = buckets[self._launched]
            if bucket != self._late:
                self._submit(bucket, self._arena.flat_gradient(bucket), self._in_time)
            self._launched += 1

    def _submit(self, bucket: Bucket, gradients: np.ndarray, outcomes: _Outcomes) -> None:
        self._do(partial(self._bucket_sum, bucket=bucket, gradients=gradients), outcomes)

    def _do(self, job: Job, outcomes: _Outcomes) -> None:
        self._lanes[self._jobs % LANES].do(job, outcomes)
        self._jobs += 1


class _Outcomes:
    """What jobs under way will have come to."""

    def __init__(self) -> None:
        self._under_way = 0
        self._queue: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        self.put = self._queue.put

    def expect(self) -> None:
        """One more."""
        self._under_way += 1

    def collect(self) -> int:
        """Wait for all; returns the bytes they have sent, or raises what one of them has."""
        sent = 0
        while self._under_way:
            outcome = self._queue.get()
            self._under_way -= 1
            if isinstance(outcome, BaseException):
                raise outcome
            sent += outcome
        return sent


class _Lane:
    """A thread that makes blocking collective calls, on a communicator that only it uses."""

    def __init__(self, communicator: Communicator, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Job, _Outcomes] | None] = queue.SimpleQueue()
        self._communicator = communicator
        start_thread(self._communicate, name)

    def do(self, job: Job, outcomes: _Outcomes) -> None:
        """After what it has to do already."""
        outcomes.expect()
        self._jobs.put((job, outcomes))

    def end(self) -> None:
        """After the last job."""
        self._jobs.put(None)

    def _communicate(self) -> None:
        # A run that diverges is ended with one message, to which NumPy's have nothing to add.
        with np.errstate(over="ignore", invalid="ignore"):
            while (order := self._jobs.get()) is not None:
                job, outcomes = order
                try:
                    outcomes.put(job(self._communicator))
                except BaseException as error:  # comes out where the main thread waits
                    outcomes.put(error)
                    return


def _sum_scalars(scalars: np.ndarray, communicator: Communicator) -> int:
    communicator.allreduce(scalars)
    return 0  # too few to count
