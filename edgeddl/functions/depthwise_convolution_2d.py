"""Depthwise convolution, as chainer.functions.depthwise_convolution_2d."""

from __future__ import annotations

from typing import Any

from edgeddl.functions.convolution_2d import convolution_2d
from edgeddl.functions.node import Pair, stock


def depthwise_convolution_2d(x: Any, W: Any, b: Any = None, stride: Pair = 1, pad: Pair = 0) -> Any:
    """Each channel of x (N, C, H, W) times its M filters in W (M, C, kh, kw), plus b (C*M,)."""
    multiplier, channels, kh, kw = W.shape
    filters = stock.reshape(stock.transpose(W, (1, 0, 2, 3)), (channels * multiplier, 1, kh, kw))
    return convolution_2d(x, filters, b, stride, pad, groups=channels)
