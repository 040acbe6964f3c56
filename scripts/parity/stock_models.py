"""The built-in models of stock Chainer's links, with the names that edgeddl's links have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L


class ConvolutionBN(chainer.Chain):
    def __init__(self, c: int, k: int, ksize: int, stride: int = 1) -> None:
        super().__init__()
        with self.init_scope():
            self.convolution = L.Convolution2D(c, k, ksize, stride, ksize // 2, nobias=True)
            self.normalization = L.BatchNormalization(k)

    def forward(self, x: Any) -> Any:
        return self.normalization(self.convolution(x))


class BasicBlock(chainer.Chain):
    def __init__(self, c: int, k: int, stride: int = 1) -> None:
        super().__init__()
        changes = stride != 1 or c != k
        with self.init_scope():
            self.first = ConvolutionBN(c, k, 3, stride)
            self.second = ConvolutionBN(k, k, 3)
            self.shortcut = ConvolutionBN(c, k, 1, stride) if changes else None

    def forward(self, x: Any) -> Any:
        residual = x if self.shortcut is None else self.shortcut(x)
        return F.relu(self.second(F.relu(self.first(x))) + residual)


class ResNet18(chainer.Chain):
    def __init__(self, classes: int, pools: bool) -> None:
        super().__init__()
        self.pools = pools
        with self.init_scope():
            self.stem = ConvolutionBN(3, 64, *((7, 2) if pools else (3, 1)))
            self.stage1 = chainer.Sequential(BasicBlock(64, 64), BasicBlock(64, 64))
            self.stage2 = chainer.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128))
            self.stage3 = chainer.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256))
            self.stage4 = chainer.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512))
            self.head = L.Linear(512, classes)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.stem(x))
        if self.pools:
            h = F.max_pooling_2d(h, 3, stride=2, pad=1, cover_all=False)
        h = self.stage4(self.stage3(self.stage2(self.stage1(h))))
        return self.head(F.mean(h, axis=(2, 3)))


class Residual(chainer.Chain):
    def __init__(self, k: int) -> None:
        super().__init__()
        with self.init_scope():
            self.first = ConvolutionBN(k, k, 3)
            self.second = ConvolutionBN(k, k, 3)

    def forward(self, x: Any) -> Any:
        return x + F.relu(self.second(F.relu(self.first(x))))


class ResNet9(chainer.Chain):
    def __init__(self, classes: int) -> None:
        super().__init__()
        with self.init_scope():
            self.stem = ConvolutionBN(3, 32, 3)
            self.layer1 = ConvolutionBN(32, 64, 3)
            self.residual1 = Residual(64)
            self.layer2 = ConvolutionBN(64, 128, 3)
            self.layer3 = ConvolutionBN(128, 256, 3)
            self.residual3 = Residual(256)
            self.head = L.Linear(256, classes, nobias=True)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.layer1(F.relu(self.stem(x))))
        h = self.residual1(F.max_pooling_2d(h, 2))
        h = F.max_pooling_2d(F.relu(self.layer2(h)), 2)
        h = self.residual3(F.max_pooling_2d(F.relu(self.layer3(h)), 2))
        return 0.125 * self.head(F.max_pooling_2d(h, h.shape[2:]))


class UserNet(chainer.Chain):
    """A user's model: grouped, dilated and depthwise convolutions, concatenation, dropout."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(None, 16, 3, stride=2, pad=1)
            self.bn = L.BatchNormalization(16)
            self.grouped = L.Convolution2D(16, 16, 3, pad=2, dilate=2, groups=4)
            self.depthwise = L.DepthwiseConvolution2D(32, 1, 3)
            self.hidden = L.Linear(None, 64)
            self.head = L.Linear(64, classes)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.bn(self.conv(x)))
        h = F.relu(self.depthwise(F.concat((h, self.grouped(h)), axis=1)))
        h = F.average_pooling_2d(F.max_pooling_2d(h, 3, stride=2), 3, stride=2, pad=1)
        return self.head(F.dropout(F.relu(self.hidden(h))))


# By name: how stock Chainer builds the model.
STOCK: dict[str, Callable[[int], Any]] = {
    "resnet18": lambda classes: ResNet18(classes, pools=False),
    "resnet18-imagenet": lambda classes: ResNet18(classes, pools=True),
    "resnet9": ResNet9,
    "user-model": UserNet,
}
