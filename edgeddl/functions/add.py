"""Addition, as chainer.functions.add."""

from __future__ import annotations

from functools import reduce
from typing import Any

from edgeddl import kernels
from edgeddl.functions.node import Array, Node, falls_back_to_chainer, stock, unsupported_arrays


class Add(Node):
    """z = x + y; both inputs get the gradient of z."""

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        return (kernels.add(*inputs),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array, Array]:
        return gy, gy


def add(*xs: Any) -> Any:
    """The sum of two or more arrays of the same shape."""
    if falls_back_to_chainer("add", _unsupported(xs)):
        return stock.add(*xs)
    return reduce(lambda x, y: Add().apply((x, y))[0], xs)


def _unsupported(xs: tuple[Any, ...]) -> str | None:
    shapes = {getattr(x, "shape", ()) for x in xs}
    if len(xs) < 2 or len(shapes) > 1:
        return "a single array" if len(xs) < 2 else "arrays of different shapes"
    if xs[0].ndim not in (2, 4):
        return f"{xs[0].ndim}-dimensional input"
    return unsupported_arrays(*xs)
