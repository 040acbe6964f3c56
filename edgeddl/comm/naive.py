"""The plainest reducer: one blocking all-reduce per parameter after backward.

It is the oracle that the bucketed reducer is tested against, and the baseline that it is measured
against: what ChainerMN does on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeddl.comm.arena import Arena
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.compression import BucketSum


class NaiveReducer:
    """Leaves the gradients to Chainer and sums them when backward has ended."""

    def __init__(self, communicator: Communicator, arena: Arena, bucket_sum: BucketSum) -> None:
        self.bytes_sent = 0
        self._communicator = communicator
        self._arena = arena
        self._bucket_sum = bucket_sum
        self._scalars: np.ndarray | None = None

    def begin_step(self, micro_batches: int) -> None:
        self._arena.gradients.fill(0)

    def send_scalars(self, scalars: np.ndarray) -> None:
        self._scalars = scalars

    def begin_backward(self) -> None:
        pass

    def view_for(self, parameter: Any) -> np.ndarray | None:
        return None

    def ready(self, parameter: Any) -> None:
        pass

    def end_backward(self, gradients: Mapping[str, np.ndarray | None]) -> None:
        for name, gradient in gradients.items():
            if gradient is not None:
                view = self._arena.gradient(name)
                view += gradient

    def wait(self) -> None:
        if self._scalars is not None:
            self._communicator.allreduce(self._scalars)
            self._scalars = None
        for bucket in self._arena.plan.single_slots:
            gradient = self._arena.flat_gradient(bucket)
            self.bytes_sent += self._bucket_sum(self._communicator, bucket, gradient)

    def wait_late(self) -> None:
        """Nothing: no bucket is late."""

    def close(self) -> None:
        pass
