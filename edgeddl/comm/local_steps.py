"""Local steps: each rank trains alone for a round of steps, then all ranks take the mean.

The mean is over parameters and momentum, weighted by the images of each rank in the round. A round
of one step is therefore ordinary training up to rounding: from the same start, the mean of the
ranks' updates is the update by the mean of their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeddl.comm.bucket import ITEM_BYTES, Bucket
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.exchange import BackwardSink, GradientExchange, Range, Step
from edgeddl.comm.policies import Policy


class OwnGradients(Policy):
    """Sends nothing: each rank updates its parameters by its own gradients."""

    def sum(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        return 0

    def payloads(self, bucket: Bucket) -> list[int]:
        return []


class LocalSteps(GradientExchange):
    """Wraps an exchange with the policy OwnGradients, which sums the scalars of each step.

    A round has `steps` steps; the last round of an epoch may have fewer.
    """

    def __init__(self, inner: GradientExchange, steps: int) -> None:
        super().__init__(inner.communicator, inner.arena, inner.policy)
        self.round_steps = steps
        self.buckets = ()
        self.observers = inner.observers
        self._inner = inner
        self._begin_round()

    @property
    def description(self) -> str:
        every = f"every {self.round_steps} steps and at the end of an epoch"
        return f"parameters and momentum {every}, float32 on the wire"

    @property
    def sink(self) -> BackwardSink:
        return self._inner.sink

    def payloads(self) -> list[int]:
        return [self.arena.plan.trained_length * ITEM_BYTES] * 2

    def buffer_bytes(self) -> int:
        return self.arena.parameters.nbytes

    def open(self) -> None:
        self._inner.open()

    def begin_step(self, step: Step) -> int:
        self._inner.begin_step(step)
        self._taken += 1
        self._images += step.images
        self._own_images += step.own_images
        self._step_images = step.own_images
        self._ends_round = self._taken == self.round_steps or step.ends_epoch
        return step.own_images

    def sum_scalars(self, scalars: np.ndarray) -> None:
        self._inner.sum_scalars(scalars)

    def ready_ranges(self) -> Sequence[Range]:
        ranges = list(self._inner.ready_ranges())
        return ranges if self._step_images else ()

    def end_step(self, arrays: Sequence[np.ndarray]) -> bool:
        if not self._ends_round:
            return False
        if self.communicator.size > 1:
            for array in arrays:
                self._take_mean(array[: self.arena.plan.trained_length])
        self._begin_round()
        return True

    def close(self) -> None:
        self._inner.close()

    def _begin_round(self) -> None:
        self._taken = self._images = self._own_images = 0

    def _take_mean(self, array: np.ndarray) -> None:
        # Multiplied by the rank's images and divided by all images, not multiplied by its share:
        # shares such as 1/3 are rounded, so their sum is not 1, and parameters would drift.
        array *= np.float32(self._own_images)
        self.communicator.allreduce(array)
        array /= np.float32(self._images)
        self.bytes_sent += optimal_bytes(array.nbytes, self.communicator.size)


def steps_to_round_end(
    steps: int, *, this_epoch: int, steps_per_epoch: int, round_steps: int
) -> int:
    """`steps` rounded up to the end of a round, counted from the end of another round.

    this_epoch: the number of steps left in the current epoch
    """
    before, epoch = 0, this_epoch
    if steps > this_epoch:
        epochs, steps = divmod(steps - this_epoch, steps_per_epoch)
        before, epoch = this_epoch + epochs * steps_per_epoch, steps_per_epoch
    return before + min(-(-steps // round_steps) * round_steps, epoch)
