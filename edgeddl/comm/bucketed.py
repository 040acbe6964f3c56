"""Sums gradients over all ranks while backward is still producing them.

    main thread    loss ── backward ──gW──gW──gW──gW──gW──gW── wait ── update
                    │                      │       │       │    ▲
    channel 0       └─scalars              │       └─bucket 1 ──┤
    channel 1                              └─bucket 0 ─────┴─bucket 2

A function writes a gradient directly into its view of a flat bucket and calls `ready`. As soon as
the last gradient of a bucket is ready, the bucket goes to a channel: a thread with its own
communicator. During a step only channels make collective calls. Scalars and buckets alternate
between channels in a fixed order, that of the plan, so every rank sends the same buckets in the
same order on each channel, whatever its timing. While one channel waits for the first or last
messages of its bucket, the other one keeps the link busy.

One bucket may be late: it leaves after all others, even if its gradients were ready first, and the
step ends without it. The gradients of the last layers are ready first, and their parameters are
read last. So their bucket travels during the next forward pass, which waits for it at the read
barrier (functions/read_barrier.py).
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import Bucket, Use
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import GradientExchange, Range, Step
from edgeddl.comm.policies import FactoredGradients, Policy
from edgeddl.errors import CommunicationError
from edgeddl.log import start_thread
from edgeddl.table import counted

CHANNELS = 2
# Work for a channel; returns the bytes it has sent.
Job = Callable[[Communicator], int]


class BucketedExchange(GradientExchange):
    """Buckets, summed by communication threads during the backward pass."""

    overlaps_backward = True

    def __init__(
        self,
        communicator: Communicator,
        arena: Arena,
        parameters: Mapping[str, Any],
        policy: Policy,
        *,
        overlap_forward: bool = False,
    ) -> None:
        """`overlap_forward`: allow a late bucket.

        Requires that every function of the model calls the read barrier.
        """
        super().__init__(communicator, arena, policy)
        self._parameters = dict(parameters)  # keeps parameters alive, so that their ids stay unique
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        specs = [slot.spec for slot in arena.plan.slots]
        self._views = {spec.name: arena.gradient(spec.name) for spec in specs}
        self._shared = {spec.name for spec in specs if spec.use is Use.SHARED}
        self._bucket_of = {
            slot.spec.name: index
            for index, bucket in enumerate(self.buckets)
            for slot in bucket.slots
        }
        self._late = self._choose_late() if overlap_forward else None
        if self._late is not None:
            self.late_parameters = [slot.spec.name for slot in self._late.slots]
        self._passes_left = 0
        self._first_pass = True
        self._written: dict[str, np.ndarray] = {}
        self._missing: list[int] = []  # per bucket, the number of gradients not ready
        self._launched = 0  # buckets handed to channels
        self._channels: list[_Channel] = []
        self._jobs = 0  # submitted in this step
        self._results, self._late_results = _Results(), _Results()

    def open(self) -> None:
        communicators = self.communicator.channels(CHANNELS)
        self._channels = [
            _Channel(each, f"channel {number}") for number, each in enumerate(communicators)
        ]

    def factored_gradients(self) -> list[FactoredGradients]:
        return list(self.policy.leave_factored()) if self.communicator.size > 1 else []

    @property
    def description(self) -> str:
        size = self.arena.plan.bucket_bytes / 2**20
        buckets = f"{counted(len(self.buckets), 'bucket')} of about {size:g} MiB"
        return f"bucketed, {buckets}, {self.policy.description} on the wire"

    @property
    def sink(self) -> BucketedExchange:
        return self

    def begin_step(self, step: Step) -> int:
        self._passes_left = len(step.micro_batches)
        self._first_pass = True
        self._missing = [len(bucket.slots) for bucket in self.buckets]
        self._launched = self._jobs = 0
        if self._passes_left == 0:
            self.arena.gradients.fill(0)
            self._missing = [0] * len(self._missing)
        return step.images

    def sum_scalars(self, scalars: np.ndarray) -> None:
        self._submit(partial(_sum_scalars, scalars), self._results)

    def begin_backward(self) -> None:
        self._written = {}

    def view_for(self, parameter: Any) -> np.ndarray | None:
        name = self._names.get(id(parameter))
        if name is None or name in self._shared:
            return None  # Chainer adds its gradients and passes the sum to end_backward
        if name in self._written:
            raise _used_twice(name)
        # A later pass adds to what the first one has left in the bucket.
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
                    raise _used_twice(name)  # also by a function that does not ask for a view
                continue
            if self._first_pass:
                view[...] = 0 if gradient is None else gradient
            elif gradient is not None:
                view += gradient
            self._count_ready(name)
        self._first_pass = False
        self._passes_left -= 1

    def ready_ranges(self) -> list[Range]:
        self._launch_complete_buckets()
        self.bytes_sent += self._results.collect()
        length, late = self.arena.plan.length, self._late
        if late is None:
            return [(0, length)]
        # Submitted last, so that it does not compete for the link with buckets that this step waits
        # for.
        parts = CHANNELS if self.policy.splittable else 1
        for part in np.array_split(self.arena.flat_gradient(late), parts):
            self._submit_bucket(late, part, self._late_results)
        return [(0, late.start), (late.stop, length)]

    def late_ranges(self) -> list[Range]:
        self.bytes_sent += self._late_results.collect()
        return [(self._late.start, self._late.stop)] if self._late is not None else []

    def close(self) -> None:
        # Without joining: after a failure a channel may be in a collective call that never returns.
        for channel in self._channels:
            channel.end()

    def _choose_late(self) -> Bucket | None:
        if self.communicator.size == 1 or len(self.buckets) < 2:
            return None
        # With more than three buckets, delay the second: the first one is complete while the link
        # is still idle, so delaying it would waste bandwidth.
        return self.buckets[1 if len(self.buckets) > 3 else 0]

    def _count_ready(self, name: str) -> None:
        if self._passes_left == 1:
            bucket = self._bucket_of[name]
            self._missing[bucket] -= 1
            if not self._missing[bucket]:
                self._launch_complete_buckets()

    def _launch_complete_buckets(self) -> None:
        while self._launched < len(self.buckets) and self._missing[self._launched] == 0:
            bucket = self.buckets[self._launched]
            if bucket is not self._late:
                self._submit_bucket(bucket, self.arena.flat_gradient(bucket), self._results)
            self._launched += 1

    def _submit_bucket(self, bucket: Bucket, gradients: np.ndarray, results: _Results) -> None:
        self._submit(partial(self.sum_bucket, bucket=bucket, gradients=gradients), results)

    def _submit(self, job: Job, results: _Results) -> None:
        self._channels[self._jobs % len(self._channels)].submit(job, results)
        self._jobs += 1


class _Results:
    """Results of pending jobs."""

    def __init__(self) -> None:
        self._pending = 0
        self._queue: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        self.put = self._queue.put

    def expect(self) -> None:
        """One more job is pending."""
        self._pending += 1

    def collect(self) -> int:
        """Wait for all jobs; returns the bytes they sent, or raises the error of one of them."""
        sent = 0
        while self._pending:
            result = self._queue.get()
            self._pending -= 1
            if isinstance(result, BaseException):
                raise result
            sent += result
        return sent


class _Channel:
    """A thread that makes blocking collective calls on a communicator of its own."""

    def __init__(self, communicator: Communicator, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Job, _Results] | None] = queue.SimpleQueue()
        self._communicator = communicator
        start_thread(self._communicate, name)

    def submit(self, job: Job, results: _Results) -> None:
        """Queue a job."""
        results.expect()
        self._jobs.put((job, results))

    def end(self) -> None:
        """End the thread after the last queued job."""
        self._jobs.put(None)

    def _communicate(self) -> None:
        # A run that diverges ends with one message, which NumPy's warnings would hide.
        with np.errstate(over="ignore", invalid="ignore"):
            while (submitted := self._jobs.get()) is not None:
                job, results = submitted
                try:
                    results.put(job(self._communicator))
                except BaseException as error:  # raised again in the main thread, by `collect`
                    results.put(error)
                    return


def _sum_scalars(scalars: np.ndarray, communicator: Communicator) -> int:
    communicator.allreduce(scalars)
    return 0  # too few bytes to count


def _used_twice(name: str) -> CommunicationError:
    """The graph has changed since start-up: a gradient could leave before it is complete."""
    return CommunicationError(
        f"this step uses parameter {name} more than once, the pass at start-up used it once",
        hint="use the same layers in every forward pass, or train with --communicator naive",
    )
