"""Stochastic gradient descent with momentum over flat arrays.

All parameters lie in one float32 array and their gradients in another, so one kernel call updates
all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgeddl import kernels
from edgeddl.kernels.matrices import Products
from edgeddl.kernels.segments import SEGMENT


@dataclass(frozen=True)
class Segment:
    """Elements start to stop (excluded) of the flat arrays, and their weight decay."""

    start: int
    stop: int
    weight_decay: float


class MomentumSGD:
    """v = momentum * v + d;  p -= learning_rate * v,  with d = gradient + weight_decay * p.

    With Nesterov's momentum, p -= learning_rate * (d + momentum * v). The velocity does not include
    the learning rate, so a schedule takes effect at once. Elements outside all segments are not
    changed.

    `factored`: gradients that exist only as products of thin matrices, each within one segment.
    """

    def __init__(
        self,
        parameters: np.ndarray,
        gradients: np.ndarray,
        segments: Sequence[Segment],
        *,
        momentum: float,
        nesterov: bool,
        factored: Sequence[Products] = (),
    ) -> None:
        _check(parameters, gradients, segments)
        self.parameters = parameters
        self.gradients = gradients
        self.segments = tuple(sorted(segments, key=lambda segment: segment.start))
        self.momentum = momentum
        self.nesterov = nesterov
        self.velocity = np.zeros_like(parameters)
        self._factored = [(each, self._weight_decays(each)) for each in factored]
        self._parts: dict[tuple[int, int], np.ndarray] = {}

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """What an update changes."""
        return self.parameters, self.velocity

    def update(self, learning_rate: float, start: int = 0, stop: int | None = None) -> None:
        """Update the elements start to stop (excluded) in place; all elements by default.

        The range must contain all matrices of a bucket's factored gradients, or none of them.
        """
        if stop is None:
            stop = self.parameters.size
        rule = learning_rate, self.momentum, self.nesterov
        segments = self._segments(start, stop)
        kernels.momentum_sgd(self.parameters, self.gradients, self.velocity, segments, *rule)
        for each, decays in self._factored:
            if start <= each.start < stop:
                kernels.momentum_sgd_of_products(
                    self.parameters, each, self.velocity, decays, *rule
                )

    def _segments(self, start: int, stop: int) -> np.ndarray:
        """Segments of start to stop without factored gradients, for the kernel; cached."""
        if (start, stop) not in self._parts:
            bounds = (bound for each, _ in self._factored for bound in each.bounds())
            taken = sorted(bound for bound in bounds if start <= bound[0] < stop)
            gaps = _gaps(start, stop, taken)
            parts = [
                (max(s.start, first), min(s.stop, last), s.weight_decay)
                for s in self.segments
                for first, last in gaps
            ]
            self._parts[start, stop] = np.array([p for p in parts if p[0] < p[1]], SEGMENT)
        return self._parts[start, stop]

    def _weight_decays(self, products: Products) -> np.ndarray:
        """The weight decay of each matrix."""
        decays = [self._segment_around(*bounds).weight_decay for bounds in products.bounds()]
        return np.array(decays, np.float64)

    def _segment_around(self, start: int, stop: int) -> Segment:
        for segment in self.segments:
            if segment.start <= start and stop <= segment.stop:
                return segment
        raise ValueError(f"the matrix at {start}..{stop} is not in one segment")


def _gaps(start: int, stop: int, taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of start to stop that are not taken, in order."""
    firsts = [start, *(last for _, last in taken)]
    return list(zip(firsts, [*(first for first, _ in taken), stop], strict=True))


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
