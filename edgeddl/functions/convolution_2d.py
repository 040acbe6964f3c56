"""Two-dimensional convolution, as chainer.functions.convolution_2d."""

from __future__ import annotations

from functools import cache
from typing import Any

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.functions.node import (
    Array,
    Node,
    Pair,
    falls_back_to_chainer,
    pair,
    stock,
    unsupported_arrays,
)
from edgeddl.kernels.batch_statistics import FoldedNormalization
from edgeddl.kernels.window import Window


class Convolution2D(Node):
    """y = windows of x times W, plus b."""

    def __init__(self, stride: Pair = 1, pad: Pair = 0, dilate: Pair = 1, groups: int = 1) -> None:
        super().__init__()
        self.stride, self.pad, self.dilate = pair(stride), pair(pad), pair(dilate)
        self.groups = groups

    def window(self, W: Array) -> Window:
        """The geometry: that of the layer and the shape of the weights."""
        if W.ndim != 4:
            raise KernelError(f"W must have the shape (K, C, kh, kw), not {W.shape}")
        return _window(W.shape[2:], self.stride, self.pad, self.dilate)

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0, 1))
        x, W, *b = inputs
        window = self.window(W)
        return (kernels.convolution_forward(x, W, b[0] if b else None, window, self.groups),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        W = self.retained_input(1)
        window, groups, gx, gW, gb = self.window(W), self.groups, None, None, None
        if 1 in wanted:
            gW = self.weight_gradient(self.retained_input(0), gy, window)
        if 2 in wanted:
            out = self.view_for(2)
            gb = kernels.channel_sums(gy, out)
            self.ready(2, out)
        if 0 in wanted:
            gx = kernels.convolution_input_gradient(
                gy, W, self.inputs[0].shape, window, groups, self.so_far.pop(0, None)
            )
        return (gx, gW, gb)[: len(self.inputs)]

    def weight_gradient(
        self,
        x: Array,
        gy: Array,
        window: Window,
        normalization: FoldedNormalization | None = None,
    ) -> Array:
        """gW, in the sink's view if it has one."""
        out = self.view_for(1)
        gW = kernels.convolution_weight_gradient(x, gy, window, self.groups, out, normalization)
        self.ready(1, out)
        return gW


_Two = tuple[int, int]


@cache
def _window(size: _Two, stride: _Two, pad: _Two, dilate: _Two) -> Window:
    return Window(*size, *stride, *pad, dy=dilate[0], dx=dilate[1])


def convolution_2d(
    x: Any,
    W: Any,
    b: Any = None,
    stride: Pair = 1,
    pad: Pair = 0,
    cover_all: bool = False,
    *,
    dilate: Pair = 1,
    groups: int = 1,
    cudnn_fast: bool = False,
) -> Any:
    """Convolution of x (N, C, H, W) with W (K, C/groups, kh, kw), plus b (K,) if given."""
    unusual = {"cover_all": cover_all, "cudnn_fast": cudnn_fast}
    reason = next((name for name, given in unusual.items() if given), None)
    if falls_back_to_chainer("convolution_2d", reason or unsupported_arrays(x, W, b)):
        options = {"dilate": dilate, "groups": groups, **unusual}
        return stock.convolution_2d(x, W, b, stride, pad, **options)
    inputs = (x, W) if b is None else (x, W, b)
    return Convolution2D(stride, pad, dilate, groups).apply(inputs)[0]
