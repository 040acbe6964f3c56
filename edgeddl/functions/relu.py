"""Rectified linear unit, as chainer.functions.relu."""

from __future__ import annotations

from typing import Any

from edgeddl import kernels
from edgeddl.functions.node import Array, Node, falls_back_to_chainer, stock, unsupported_arrays


class ReLU(Node):
    """y = max(x, 0). The output is retained: the next function usually retains it anyway."""

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_outputs((0,))
        return (kernels.relu_forward(inputs[0]),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array]:
        y = self.retained_output()
        return (kernels.relu_backward(y, gy),)


def relu(x: Any) -> Any:
    """max(x, 0)."""
    reason = f"{x.ndim}-dimensional input" if x.ndim not in (2, 4) else unsupported_arrays(x)
    if falls_back_to_chainer("relu", reason):
        return stock.relu(x)
    return ReLU().apply((x,))[0]
