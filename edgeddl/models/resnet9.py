"""ResNet-9 at half width: a small residual network for images of 32 x 32 pixels.

Based on the fast CIFAR-10 network of David Page (How to Train Your ResNet, 2018), with 32, 64, 128
and 256 channels instead of 64 to 512: 1,646,112 parameters in 25 tensors for 10 classes, 0.095 GMAC
per image. Training costs about 6 flop per MAC, 0.57 GFLOP per image: at about 20 GFLOPS a Raspberry
Pi 4 trains 35 images per second, and four of them 20 epochs of CIFAR-10 in two hours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl import functions
from edgeddl.chainer_compat import chainer
from edgeddl.errors import ConfigError
from edgeddl.links import ConvolutionBN, Linear

# From Page: small initial logits do not saturate the softmax while the learning rate is high.
OUTPUT_SCALE = 0.125


class Residual(chainer.Chain):
    """x + relu(F(relu(F(x))))."""

    def __init__(self, k: int, rng: np.random.Generator) -> None:
        super().__init__()
        with self.init_scope():
            self.first = ConvolutionBN(k, k, 3, rng=rng)
            self.second = ConvolutionBN(k, k, 3, rng=rng)

    def forward(self, x: Any) -> Any:
        return functions.add(x, self.second(self.first.convolution(x), after=self.first, relu=True))


class ResNet9(chainer.Chain):
    """Four convolutions with max pooling between them, and two residual blocks."""

    def __init__(
        self, classes: int, stem: str, rng: np.random.Generator, in_channels: int = 3
    ) -> None:
        super().__init__()
        if stem != "cifar":
            raise ConfigError(f"resnet9 has only the stem cifar, not {stem!r}")
        with self.init_scope():
            self.stem = ConvolutionBN(in_channels, 32, 3, rng=rng)
            self.layer1 = ConvolutionBN(32, 64, 3, rng=rng)
            self.residual1 = Residual(64, rng)
            self.layer2 = ConvolutionBN(64, 128, 3, rng=rng)
            self.layer3 = ConvolutionBN(128, 256, 3, rng=rng)
            self.residual3 = Residual(256, rng)
            self.head = Linear(256, classes, nobias=True, rng=rng)

    def forward(self, x: Any) -> Any:
        h = self.layer1(self.stem.convolution(x), after=self.stem, relu=True)
        h = self.residual1(_pool(h))
        h = _pool(self.layer2(h, relu=True))
        h = self.residual3(_pool(self.layer3(h, relu=True)))
        return OUTPUT_SCALE * self.head(functions.max_pooling_2d(h, h.shape[2:]))


def _pool(h: Any) -> Any:
    return functions.max_pooling_2d(h, 2)
