"""Mean over the pixels, as chainer.functions.mean(x, axis=(2, 3))."""

from __future__ import annotations

from typing import Any

from edgeddl import kernels
from edgeddl.functions.node import Array, Node, falls_back_to_chainer, stock, unsupported_arrays


class GlobalAveragePooling2D(Node):
    """y (N, C) = mean of x (N, C, H, W) over H and W."""

    x_shape: tuple[int, int, int, int]

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        (x,) = inputs
        self.x_shape = x.shape
        return (kernels.global_average_forward(x),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array]:
        return (kernels.global_average_backward(gy, self.x_shape),)


def global_average_pooling_2d(x: Any) -> Any:
    """The mean over the pixels (N, C); unlike Chainer's, its gradient is channels last."""
    if falls_back_to_chainer("global_average_pooling_2d", unsupported_arrays(x)):
        return stock.mean(x, axis=(2, 3))
    return GlobalAveragePooling2D().apply((x,))[0]
