"""Two-dimensional convolution, as chainer.functions.convolution_2d."""

from __future__ import annotations

from typing import Any

from edgeddl import kernels
from edgeddl.chainer_compat import F
from edgeddl.functions.node import Array, Node, Pair, foreign, pair, warn_stock
from edgeddl.kernels.window import Window


class Convolution2D(Node):
    """y = windows of x times W, plus b."""

    def __init__(self, stride: tuple[int, int], pad: tuple[int, int]) -> None:
        super().__init__()
        self.stride, self.pad = stride, pad

    def window(self, W: Array) -> Window:
        """The geometry, of which the weights' shape is a part."""
        (kh, kw), (sy, sx), (ph, pw) = W.shape[2:], self.stride, self.pad
        return Window(kh, kw, sy, sx, ph, pw)

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0, 1))
        x, W, *b = inputs
        return (kernels.convolution_forward(x, W, b[0] if b else None, self.window(W)),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, W = self.retained()
        window, gx, gW, gb = self.window(W), None, None, None
        if 1 in wanted:
            gW = self.parameter_gradient(
                1, lambda out: kernels.convolution_weight_gradient(x, gy, window, out)
            )
        if 2 in wanted:
            gb = self.parameter_gradient(
                2, lambda out: kernels.store(kernels.channel_sums(gy), out)
            )
        if 0 in wanted:
            gx = kernels.convolution_input_gradient(gy, W, x.shape, window)
        return (gx, gW, gb)[: len(self.inputs)]


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
) -> Any:
    """Convolution of x (N, C, H, W) with W (K, C, kh, kw), plus b (K,) if given."""
    if reason := _not_covered(x, W, b, cover_all, pair(dilate), groups):
        warn_stock("convolution_2d", reason)
        return F.convolution_2d(
            x, W, b, stride, pad, cover_all=cover_all, dilate=dilate, groups=groups
        )
    inputs = (x, W) if b is None else (x, W, b)
    return Convolution2D(pair(stride), pair(pad)).apply(inputs)[0]


def _not_covered(
    x: Any, W: Any, b: Any, cover_all: bool, dilate: tuple[int, int], groups: int
) -> str | None:
    if cover_all:
        return "cover_all"
    if dilate != (1, 1):
        return "dilate"
    return "groups" if groups != 1 else foreign(x, W, b)
