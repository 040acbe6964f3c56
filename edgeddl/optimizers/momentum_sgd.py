"""Stochastic gradient descent with momentum over flat arrays.

All parameters lie in one float32 array, their gradients in another: the update is a walk over both,
without a call for each of the many parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgeddl import kernels
from edgeddl.kernels.segments import SEGMENT


@dataclass(frozen=True)
class Segment:
    """Elements start to stop (excluded) of the flat arrays, and their weight decay."""

    start: int
    stop: int
    weight_decay: float


class MomentumSGD:
    """v = momentum * v + d;  p -= learning_rate * v,  with d = gradient + weight_decay * p.

    With Nesterov's momentum, p -= learning_rate * (d + momentum * v). The learning rate is not in
    the velocity, so a schedule takes effect at once. Elements in no segment stay as they are.
    """

    def __init__(
        self,
        parameters: np.ndarray,
        gradients: np.ndarray,
        segments: Sequence[Segment],
        *,
        momentum: float,
        nesterov: bool,
    ) -> None:
        _check(parameters, gradients, segments)
        self.parameters = parameters
        self.gradients = gradients
        self.segments = tuple(sorted(segments, key=lambda segment: segment.start))
        self.momentum = momentum
        self.nesterov = nesterov
        self.velocity = np.zeros_like(parameters)
        self._parts: dict[tuple[int, int], np.ndarray] = {}

    def update(self, learning_rate: float, start: int = 0, stop: int | None = None) -> None:
        """One step, in place; of the elements start to stop (excluded) only, if given."""
        kernels.momentum_sgd(
            self.parameters,
            self.gradients,
            self.velocity,
            self._segments(start, self.parameters.size if stop is None else stop),
            learning_rate,
            self.momentum,
            self.nesterov,
        )

    def _segments(self, start: int, stop: int) -> np.ndarray:
        """Those between start and stop, for the kernel; made once."""
        if (start, stop) not in self._parts:
            parts = [
                (max(s.start, start), min(s.stop, stop), s.weight_decay) for s in self.segments
            ]
            self._parts[start, stop] = np.array([p for p in parts if p[0] < p[1]], SEGMENT)
        return self._parts[start, stop]


def _check(parameters: np.ndarray, gradients: np.ndarray, segments: Sequence[Segment]) -> None:
    for name, array in (("parameters", parameters), ("gradients", gradients)):
        if array.dtype != np.float32 or array.ndim != 1:
            raise ValueError(f"{name} must be flat float32, not {array.dtype} {array.shape}")
    if parameters.size != gradients.size:
        raise ValueError(f"{parameters.size} parameters, but {gradients.size} gradients")
    end = 0
    for segment in sorted(segments, key=lambda segment: segment.start):
        if not end <= segment.start <= segment.stop <= parameters.size:
            raise ValueError(f"{segment} overlaps another or leaves 0..{parameters.size}")
        end = segment.stop
