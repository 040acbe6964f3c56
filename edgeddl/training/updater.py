"""One training step: forward, backward, all-reduce, update."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.comm.bucket import Bucket
from edgeddl.comm.reducer import Reducer
from edgeddl.data import StepBatch
from edgeddl.functions import smoothed_softmax_cross_entropy
from edgeddl.functions.backpropagation import backpropagate
from edgeddl.functions.gradient_sink import collecting
from edgeddl.functions.parameter_gate import Gate, guarded_by
from edgeddl.kernels.call_queue import flush, queued_calls
from edgeddl.optimizers import MomentumSGD
from edgeddl.training.clock import StepClock
from edgeddl.training.late_update import LateUpdate
from edgeddl.training.local_steps import LocalSteps
from edgeddl.training.parameters import named_parameters
from edgeddl.training.telemetry import RankStep, Vitals


@dataclass(frozen=True)
class StepResult:
    """What a step tells, the same on all ranks.

    ranks: what each rank tells of the step before this one; empty steps in the first.
    synchronised: whether all ranks have the same parameters after it.
    """

    loss: float
    stop_requested: bool
    ranks: tuple[RankStep, ...] = ()
    synchronised: bool = True


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: a step makes thousands of objects, but no cycles of them.

    Looking for cycles, again and again, takes 1 % of a step.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Updater:
    """Joins model, reducer and optimizer to the step that all ranks take together.

    With `local_steps` each rank takes it alone, with the mean gradient of its own images, and the
    ranks meet at the end of a round; the reducer must leave gradients alone then.

    The parameters of the reducer's `late` bucket are updated when its gradients have come: in the
    next step's forward pass, just before it reads them, or by who settles the late update before.
    """

    def __init__(
        self,
        model: chainer.Chain,
        reducer: Reducer,
        optimizer: MomentumSGD,
        *,
        rank: int = 0,
        ranks: int = 1,
        label_smoothing: float = 0.0,
        local_steps: LocalSteps | None = None,
        late: Bucket | None = None,
        late_update: LateUpdate | None = None,
        vitals: Callable[[], Vitals] = Vitals,
    ) -> None:
        self._model = model
        self._parameters = named_parameters(model)
        self._reducer = reducer
        self._optimizer = optimizer
        self._rank, self._ranks = rank, ranks
        self._last_step = RankStep()
        self._vitals = vitals
        self._label_smoothing = label_smoothing
        self._local_steps = local_steps
        self._late_update = late_update or LateUpdate()
        self._late = late
        names = [] if late is None else [slot.spec.name for slot in late.slots]
        self._late_parameters = {id(self._parameters[name]) for name in names}

    def step(
        self, batch: StepBatch, learning_rate: float, stop_requested: bool, clock: StepClock
    ) -> StepResult:
        with _uncollected():
            return self._step(batch, learning_rate, stop_requested, clock)

    def _step(
        self, batch: StepBatch, learning_rate: float, stop_requested: bool, clock: StepClock
    ) -> StepResult:
        passes_left = len(batch.micro_batches)
        images_of_gradient = batch.own_images if self._local_steps else batch.images
        scalars = self._scalars(stop_requested)
        if not batch.micro_batches:  # there is no forward pass to wait in
            self._late_update.settle(clock)
        self._reducer.begin_step(passes_left)
        for x, t in batch.micro_batches:
            with clock.phase("forward"), guarded_by(self._gate(clock)), queued_calls():
                loss = smoothed_softmax_cross_entropy(self._model(x), t, self._label_smoothing)
                scalars[0] += float(loss.array) * (len(t) / batch.images)
            self._late_update.settle(clock)  # backward writes where late gradients arrive
            passes_left -= 1
            if passes_left == 0:
                self._reducer.send_scalars(scalars)
            with clock.phase("backward"):
                self._backward(loss, len(t) / images_of_gradient)
        if not batch.micro_batches:
            self._reducer.send_scalars(scalars)
        with clock.phase("allreduce_wait"):
            self._reducer.wait()
        with clock.phase("update"):
            if images_of_gradient:
                self._update(learning_rate)
            else:
                self._reducer.wait_late()
        with clock.phase("allreduce_wait"):
            synchronised = self._local_steps is None or self._local_steps.add(batch)
        self._last_step = RankStep.of(clock, batch.own_images, self._vitals())
        loss, stop = scalars[:2].tolist()
        ranks = tuple(RankStep(*row) for row in self._rows(scalars).tolist())
        return StepResult(loss, bool(stop), ranks, synchronised)

    def _update(self, learning_rate: float) -> None:
        if self._late is None:
            self._optimizer.update(learning_rate)
            return
        self._optimizer.update(learning_rate, 0, self._late.start)
        self._optimizer.update(learning_rate, self._late.stop)
        self._late_update.put_off(partial(self._finish_update, self._late, learning_rate))

    def _finish_update(self, late: Bucket, learning_rate: float, clock: StepClock) -> None:
        with clock.phase("allreduce_wait"):
            self._reducer.wait_late()
        with clock.phase("update"):
            self._optimizer.update(learning_rate, late.start, late.stop)

    def _gate(self, clock: StepClock) -> Gate | None:
        return partial(self._await_late, clock) if self._late_parameters else None

    def _await_late(self, clock: StepClock, inputs: Sequence[Any]) -> None:
        """The forward pass comes to a function of these inputs."""
        if not self._late_parameters.isdisjoint(map(id, inputs)):
            flush()  # what was put off is done while gradients travel
            self._late_update.settle(clock)

    def _scalars(self, stop_requested: bool) -> np.ndarray:
        """What ranks learn of each other in a step: loss, wishes to stop, how each one's step was.

        That is the step before, because this one is not over when they are sent.
        """
        scalars = np.zeros(2 + self._ranks * len(RankStep._fields), np.float64)
        scalars[1] = stop_requested
        self._rows(scalars)[self._rank] = self._last_step
        return scalars

    def _rows(self, scalars: np.ndarray) -> np.ndarray:
        return scalars[2:].reshape(self._ranks, -1)

    def _backward(self, loss: chainer.Variable, share: float) -> None:
        """Gradients of this micro-batch's part in the mean loss over the images of the gradient."""
        self._reducer.begin_backward()
        with collecting(self._reducer):
            gradients = backpropagate(loss, np.asarray(share, loss.dtype))
        for parameter in self._parameters.values():
            if parameter.grad is not None:  # by a backward pass within, as of functions.forget
                own, parameter.grad = parameter.grad, None
                so_far = gradients.get(parameter.node)
                gradients[parameter.node] = own if so_far is None else so_far + own
        parameters = self._parameters.items()
        self._reducer.end_backward({name: gradients.get(p.node) for name, p in parameters})
