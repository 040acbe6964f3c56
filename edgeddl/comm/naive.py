"""One blocking all-reduce for each parameter, after the backward pass.

This is the oracle in tests of the bucketed exchange, and the baseline in its measurements, as
ChainerMN does the same on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeddl.comm.arena import Arena
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import GradientExchange, Range, Step
from edgeddl.comm.policies import Policy
from edgeddl.table import counted


class NaiveExchange(GradientExchange):
    """Leaves gradients to Chainer and sums them when the last backward pass has ended."""

    def __init__(
        self,
        communicator: Communicator,
        arena: Arena,
        parameters: Mapping[str, Any],
        policy: Policy,
        *,
        overlap_forward: bool = False,
    ) -> None:
        """As BucketedExchange; no parameter needs a view, and no bucket is late."""
        super().__init__(communicator, arena, policy)
        self.buckets = arena.plan.single_slots
        self._scalars: np.ndarray | None = None

    @property
    def description(self) -> str:
        count = counted(len(self.buckets), "blocking all-reduce")
        return f"naive, {count}, {self.policy.description} on the wire"

    @property
    def sink(self) -> NaiveExchange:
        return self

    def begin_step(self, step: Step) -> int:
        self.arena.gradients.fill(0)
        return step.images

    def sum_scalars(self, scalars: np.ndarray) -> None:
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
                view = self.arena.gradient(name)
                view += gradient

    def ready_ranges(self) -> list[Range]:
        if self._scalars is not None:
            self.communicator.allreduce(self._scalars)
            self._scalars = None
        for bucket in self.buckets:
            gradient = self.arena.flat_gradient(bucket)
            self.bytes_sent += self.sum_bucket(self.communicator, bucket, gradient)
        return [(0, self.arena.plan.length)]
