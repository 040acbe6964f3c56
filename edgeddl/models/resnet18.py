"""ResNet-18: He et al., Deep Residual Learning for Image Recognition, 2016.

Two stems. "cifar", 3 x 3 without pooling, for images of 32 x 32 pixels: 11,173,962 parameters in
62 tensors for 10 classes, 0.555 GMAC per image. "imagenet", 7 x 7 with stride 2 and max pooling,
for large images: on 32 x 32 pixels 15 times less work for the same amount of gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl import functions
from edgeddl.chainer_compat import chainer
from edgeddl.errors import ConfigError
from edgeddl.links import ConvolutionBN, Linear
from edgeddl.links.direct_call import DirectCall
from edgeddl.registry import STEMS


class BasicBlock(DirectCall, chainer.Chain):
    """relu(x + F(x)); if the shape changes, x goes through a 1 x 1 convolution."""

    def __init__(self, c: int, k: int, stride: int, rng: np.random.Generator) -> None:
        super().__init__()
        changes = stride != 1 or c != k
        with self.init_scope():
            self.first = ConvolutionBN(c, k, 3, stride, rng=rng)
            self.second = ConvolutionBN(k, k, 3, rng=rng)
            self.shortcut = ConvolutionBN(c, k, 1, stride, rng=rng) if changes else None

    def forward(self, x: Any) -> Any:
        residual = x if self.shortcut is None else self.shortcut(x)
        return self.second(self.first.convolution(x), after=self.first, residual=residual)


class ResNet18(chainer.Chain):
    """A stem, four stages of two blocks, the mean over the pixels, one linear layer."""

    def __init__(
        self, classes: int, stem: str, rng: np.random.Generator, in_channels: int = 3
    ) -> None:
        super().__init__()
        if stem not in STEMS:
            raise ConfigError(f"resnet18 has the stems {' and '.join(STEMS)}, not {stem!r}")
        self.pools = stem == "imagenet"
        with self.init_scope():
            window = (7, 2) if self.pools else (3, 1)
            self.stem = ConvolutionBN(in_channels, 64, *window, rng=rng)
            self.stage1 = _stage(64, 64, 1, rng)
            self.stage2 = _stage(64, 128, 2, rng)
            self.stage3 = _stage(128, 256, 2, rng)
            self.stage4 = _stage(256, 512, 2, rng)
            self.head = Linear(512, classes, rng=rng)

    def forward(self, x: Any) -> Any:
        h = self.stem(x, relu=True)
        if self.pools:
            h = functions.max_pooling_2d(h, 3, stride=2, pad=1, cover_all=False)
        for block in (*self.stage1, *self.stage2, *self.stage3, *self.stage4):
            h = block(h)  # not stage(h), which would keep the previous activation alive
        return self.head(functions.global_average_pooling_2d(h))


def _stage(c: int, k: int, stride: int, rng: np.random.Generator) -> Any:
    return chainer.Sequential(BasicBlock(c, k, stride, rng), BasicBlock(k, k, 1, rng))
