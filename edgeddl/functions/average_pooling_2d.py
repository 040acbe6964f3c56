"""Average pooling, as chainer.functions.average_pooling_2d."""

from __future__ import annotations

from typing import Any

from edgeddl import kernels
from edgeddl.functions.node import (
    Array,
    Node,
    Pair,
    falls_back_to_chainer,
    pair,
    stock,
    unsupported_arrays,
)
from edgeddl.kernels.window import Window


class AveragePooling2D(Node):
    """y = the mean of each window of x; only the shape of x is kept."""

    x_shape: tuple[int, int, int, int]

    def __init__(self, window: Window) -> None:
        super().__init__()
        self.window = window

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        (x,) = inputs
        self.x_shape = x.shape
        return (kernels.average_pooling_forward(x, self.window),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array]:
        return (kernels.average_pooling_backward(gy, self.x_shape, self.window),)


def average_pooling_2d(x: Any, ksize: Pair, stride: Pair | None = None, pad: Pair = 0) -> Any:
    """The mean of each window; padding counts as 0. By default the stride is the window size."""
    if falls_back_to_chainer("average_pooling_2d", unsupported_arrays(x)):
        return stock.average_pooling_2d(x, ksize, stride, pad)
    steps = ksize if stride is None else stride
    return AveragePooling2D(Window(*pair(ksize), *pair(steps), *pair(pad))).apply((x,))[0]
