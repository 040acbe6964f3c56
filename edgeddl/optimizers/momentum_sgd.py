"""Stochastic gradient descent with momentum over flat arrays.

All parameters are in one float32 array, their gradients in another: the update is one pass over
both instead of a call per parameter.
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

    `products`, if given, replace the gradients of their matrices; each matrix lies in one segment.
    """

    def __init__(
        self,
        parameters: np.ndarray,
        gradients: np.ndarray,
        segments: Sequence[Segment],
        *,
        momentum: float,
        nesterov: bool,
        products: Sequence[Products] = (),
    ) -> None:
        _check(parameters, gradients, segments)
        self.parameters = parameters
        self.gradients = gradients
        self.segments = tuple(sorted(segments, key=lambda segment: segment.start))
        self.momentum = momentum
        self.nesterov = nesterov
        self.velocity = np.zeros_like(parameters)
        self._products = [(each, self._weight_decays(each)) for each in products]
        self._parts: dict[tuple[int, int], np.ndarray] = {}

    def update(self, learning_rate: float, start: int = 0, stop: int | None = None) -> None:
        """One step, in place; only of elements start to stop (excluded), if given.

        The range must contain all or none of the matrices of each `Products`.
        """
        if stop is None:
            stop = self.parameters.size
        rule = learning_rate, self.momentum, self.nesterov
        segments = self._segments(start, stop)
        kernels.momentum_sgd(self.parameters, self.gradients, self.velocity, segments, *rule)
        for each, decays in self._products:
            if start <= each.start < stop:
                kernels.momentum_sgd_of_products(
                    self.parameters, each, self.velocity, decays, *rule
                )

    def _segments(self, start: int, stop: int) -> np.ndarray:
        """The segments between start and stop, without products, for the kernel; cached."""
        if (start, stop) not in self._parts:
            bounds = (bound for each, _ in self._products for bound in each.bounds())
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
        """The weight decay of each of its matrices."""
        decays = [self._segment_around(*bounds).weight_decay for bounds in products.bounds()]
        return np.array(decays, np.float64)

    def _segment_around(self, start: int, stop: int) -> Segment:
        for segment in self.segments:
            if segment.start <= start and stop <= segment.stop:
                return segment
        raise ValueError(f"the matrix at {start}..{stop} is not in one segment")


def _gaps(start: int, stop: int, taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges of start to stop between the taken ones, which are in order."""
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
