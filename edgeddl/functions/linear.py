"""Affine transformation, as chainer.functions.linear."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl import kernels
from edgeddl.functions.node import Array, Node, falls_back_to_chainer, stock, unsupported_arrays


class Linear(Node):
    """y = x W^T + b."""

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0, 1))
        x, W, *b = inputs
        return (kernels.linear_forward(x, W, b[0] if b else None),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, W = self.retained()
        gx, gW, gb = None, None, None
        if 1 in wanted:
            out = self.view_for(1)
            gW = kernels.linear_weight_gradient(x, gy, out)
            self.ready(1, out)
        if 2 in wanted:
            out = self.view_for(2)
            gb = kernels.channel_sums(gy, out)
            self.ready(2, out)
        if 0 in wanted:
            gx = kernels.linear_input_gradient(gy, W)
        return (gx, gW, gb)[: len(self.inputs)]


def linear(x: Any, W: Any, b: Any = None, n_batch_axes: int = 1) -> Any:
    """x W^T + b; axes of x after the first n_batch_axes are flattened into one."""
    if falls_back_to_chainer("linear", unsupported_arrays(x, W, b)):
        return stock.linear(x, W, b, n_batch_axes=n_batch_axes)
    if n_batch_axes <= 0:
        raise ValueError(f"n_batch_axes must be greater than 0, not {n_batch_axes}")
    batch = x.shape[:n_batch_axes]
    rows = x if x.ndim == 2 else stock.reshape(x, (int(np.prod(batch)), -1))
    y = Linear().apply((rows, W) if b is None else (rows, W, b))[0]
    return y if n_batch_axes == 1 else stock.reshape(y, (*batch, -1))
