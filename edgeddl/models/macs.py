"""Counts the multiply-accumulates of a network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.functions.convolution_2d import Convolution2D
from edgeddl.functions.linear import Linear


class _MacCounter(chainer.FunctionHook):
    """Adds up the multiply-accumulates of convolutions and linear layers."""

    def __init__(self) -> None:
        self.macs = 0

    def forward_preprocess(self, function: Any, in_data: tuple[np.ndarray, ...]) -> None:
        if isinstance(function, Convolution2D):
            x, W = in_data[:2]
            pixels = math.prod(function.window(W).output_size(*x.shape[2:]))
            self.macs += len(x) * pixels * W.size
        elif isinstance(function, Linear):
            x, W = in_data[:2]
            self.macs += len(x) * W.size


def count_macs(model: Any, image_shape: tuple[int, int, int] = (3, 32, 32)) -> int:
    """Multiply-accumulates of edgeddl's layers in a forward pass of one image."""
    image = np.zeros((1, *image_shape), np.float32)
    with chainer.using_config("train", False), chainer.no_backprop_mode(), _MacCounter() as counter:
        model(image)
    return counter.macs
