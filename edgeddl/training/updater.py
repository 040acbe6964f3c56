"""One training step: forward, backward, exchange of gradients, update."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.comm.exchange import GradientExchange, Range
from edgeddl.data import StepBatch
from edgeddl.functions import smoothed_softmax_cross_entropy
from edgeddl.functions.backpropagation import backpropagate
from edgeddl.functions.gradient_sink import collecting
from edgeddl.functions.read_barrier import read_barrier
from edgeddl.kernels.call_queue import flush, queued_calls
from edgeddl.optimizers import MomentumSGD
from edgeddl.training.clock import StepClock
from edgeddl.training.parameters import named_parameters
from edgeddl.training.telemetry import RankStep, Vitals


@dataclass(frozen=True)
class StepResult:
    """The result of a step, the same on all ranks.

    ranks: each rank's report of the previous step; empty reports in the first step
    synchronised: whether all ranks hold the same parameters now
    """

    loss: float
    stop_requested: bool
    ranks: tuple[RankStep, ...] = ()
    synchronised: bool = True


class Updater:
    """Runs model, gradient exchange and optimizer as one step that all ranks take together.

    A step may end before the gradients of all parameters have arrived. The rest of its update is
    then pending: `finish_pending_update` waits for it. The next forward pass calls that when it is
    about to read one of these parameters; so must everything that reads parameters between steps.
    """

    def __init__(
        self,
        model: chainer.Chain,
        exchange: GradientExchange,
        optimizer: MomentumSGD,
        *,
        label_smoothing: float = 0.0,
        vitals: Callable[[], Vitals] = Vitals,
    ) -> None:
        self._model = model
        self._parameters = named_parameters(model)
        self._exchange = exchange
        self._optimizer = optimizer
        self._label_smoothing = label_smoothing
        self._vitals = vitals
        self._last_step = RankStep()
        self._late_parameters = {id(self._parameters[name]) for name in exchange.late_parameters}
        self._pending_rate: float | None = None  # learning rate of the pending update

    def step(
        self, batch: StepBatch, learning_rate: float, stop_requested: bool, clock: StepClock
    ) -> StepResult:
        with _without_garbage_collection():
            return self._step(batch, learning_rate, stop_requested, clock)

    def _step(
        self, batch: StepBatch, learning_rate: float, stop_requested: bool, clock: StepClock
    ) -> StepResult:
        scalars, last = self._scalars(stop_requested), len(batch.micro_batches) - 1
        if not batch.micro_batches:  # otherwise the forward pass does this
            self.finish_pending_update(clock)
        # own images with --local-steps, else all
        gradient_images = self._exchange.begin_step(batch)
        for number, (x, t) in enumerate(batch.micro_batches):
            with clock.phase("forward"), self._barrier(clock), queued_calls():
                loss = smoothed_softmax_cross_entropy(self._model(x), t, self._label_smoothing)
                scalars[0] += float(loss.array) * (len(t) / batch.images)
            self.finish_pending_update(clock)  # backward overwrites gradients of the pending update
            if number == last:
                self._exchange.sum_scalars(scalars)
            with clock.phase("backward"):
                self._backward(loss, len(t) / gradient_images)
        if not batch.micro_batches:
            self._exchange.sum_scalars(scalars)
        with clock.phase("allreduce_wait"):
            ranges = self._exchange.ready_ranges()
        with clock.phase("update"):
            self._update(learning_rate, ranges)
        if self._late_parameters:
            self._pending_rate = learning_rate
        with clock.phase("allreduce_wait"):
            synchronised = self._exchange.end_step(self._optimizer.arrays)
        self._last_step = RankStep.of(clock, batch.own_images, self._vitals())
        mean_loss, stop = scalars[:2].tolist()
        ranks = tuple(RankStep(*row) for row in self._rows(scalars).tolist())
        return StepResult(mean_loss, bool(stop), ranks, synchronised)

    def finish_pending_update(self, clock: StepClock | None = None) -> None:
        """Wait for late gradients, if any are pending, and update their parameters."""
        if self._pending_rate is None:
            return
        learning_rate, self._pending_rate = self._pending_rate, None
        clock = clock or StepClock()
        with clock.phase("allreduce_wait"):
            ranges = self._exchange.late_ranges()
        with clock.phase("update"):
            self._update(learning_rate, ranges)

    def _update(self, learning_rate: float, ranges: Iterable[Range]) -> None:
        for start, stop in ranges:
            self._optimizer.update(learning_rate, start, stop)

    def _barrier(self, clock: StepClock) -> Any:
        """The read barrier of a forward pass, if there are late parameters."""
        return read_barrier(partial(self._before_read, clock) if self._late_parameters else None)

    def _before_read(self, clock: StepClock, inputs: Sequence[Any]) -> None:
        """A function is about to read these inputs."""
        if not self._late_parameters.isdisjoint(map(id, inputs)):
            flush()  # run queued kernels while the late bucket is being summed
            self.finish_pending_update(clock)

    def _scalars(self, stop_requested: bool) -> np.ndarray:
        """Numbers summed over ranks in each step.

        They are the loss, stop requests, and one row per rank with its report of the previous step,
        because this step has not ended when they are sent. Each rank fills only its own row.
        """
        communicator = self._exchange.communicator
        scalars = np.zeros(2 + communicator.size * len(RankStep._fields), np.float64)
        scalars[1] = stop_requested
        self._rows(scalars)[communicator.rank] = self._last_step
        return scalars

    def _rows(self, scalars: np.ndarray) -> np.ndarray:
        """The reports, one row for each rank."""
        return scalars[2:].reshape(self._exchange.communicator.size, -1)

    def _backward(self, loss: chainer.Variable, weight: float) -> None:
        """Compute gradients; `weight` is that of this micro-batch in the mean loss."""
        sink = self._exchange.sink
        sink.begin_backward()
        with collecting(sink):
            gradients = backpropagate(loss, np.asarray(weight, loss.dtype))
        for parameter in self._parameters.values():
            # set by a nested backward pass, e.g. chainer.functions.forget
            if parameter.grad is not None:
                own, parameter.grad = parameter.grad, None
                so_far = gradients.get(parameter.node)
                gradients[parameter.node] = own if so_far is None else so_far + own
        parameters = self._parameters.items()
        sink.end_backward({name: gradients.get(p.node) for name, p in parameters})


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A step creates thousands of objects but no cycles; searching for cycles takes 1 % of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
