"""Max pooling, as chainer.functions.max_pooling_2d."""

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


class MaxPooling2D(Node):
    """y = the maximum of each window of x.

    Input and output are retained instead of indexes: the functions before and after usually
    retain them anyway.
    """

    def __init__(self, window: Window) -> None:
        super().__init__()
        self.window = window

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0,))
        self.retain_outputs((0,))
        return (kernels.max_pooling_forward(inputs[0], self.window),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array]:
        (x,) = self.retained()
        y = self.retained_output()
        return (kernels.max_pooling_backward(x, y, gy, self.window),)


def max_pooling_2d(
    x: Any,
    ksize: Pair,
    stride: Pair | None = None,
    pad: Pair = 0,
    cover_all: bool = True,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window. By default the stride is the window size, covering all pixels."""
    if falls_back_to_chainer(
        "max_pooling_2d", "return_indices" if return_indices else unsupported_arrays(x)
    ):
        return stock.max_pooling_2d(x, ksize, stride, pad, cover_all, return_indices)
    steps = ksize if stride is None else stride
    window = Window(*pair(ksize), *pair(steps), *pair(pad), cover_all=cover_all)
    return MaxPooling2D(window).apply((x,))[0]
