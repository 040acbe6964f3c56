"""Local steps: each rank trains alone for a round of steps, then all take the mean of the results.

The mean is over parameters and momentum, weighted by the images each rank has seen in the round. A
round of one step is then ordinary training up to rounding: from the same start, the mean of the
ranks' updates is the update by the mean of their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.data import StepBatch


class LocalSteps:
    """Counts steps, and makes these flat arrays the same on all ranks at the end of each round.

    A round has `steps` steps; one that the end of an epoch cuts short has fewer.
    """

    def __init__(
        self, communicator: Communicator, arrays: Sequence[np.ndarray], *, steps: int
    ) -> None:
        self.bytes_sent = 0
        self._communicator = communicator
        self._arrays = arrays
        self._steps = steps
        self._begin_round()

    def add(self, batch: StepBatch) -> bool:
        """Count a step that was taken; whether it has ended the round: a collective call then."""
        self._taken += 1
        self._images += batch.images
        self._own_images += batch.own_images
        if self._taken < self._steps and not batch.ends_epoch:
            return False
        if self._communicator.size > 1:
            for array in self._arrays:
                self._take_mean(array)
        self._begin_round()
        return True

    def _begin_round(self) -> None:
        self._taken = self._images = self._own_images = 0

    def _take_mean(self, array: np.ndarray) -> None:
        # Times its images and divided by all, not times its share: shares such as 1/3 are rounded,
        # their sum is not 1, and parameters would shrink or grow a little with each round.
        array *= np.float32(self._own_images)
        self._communicator.allreduce(array)
        array /= np.float32(self._images)
        self.bytes_sent += optimal_bytes(array.nbytes, self._communicator.size)


def steps_to_round_end(
    steps: int, *, this_epoch: int, steps_per_epoch: int, local_steps: int
) -> int:
    """So many steps and those to the end of their round, from the end of a round on.

    this_epoch: how many steps are left in the present epoch
    """
    before, epoch = 0, this_epoch
    if steps > this_epoch:
        epochs, steps = divmod(steps - this_epoch, steps_per_epoch)
        before, epoch = this_epoch + epochs * steps_per_epoch, steps_per_epoch
    return before + min(-(-steps // local_steps) * local_steps, epoch)
