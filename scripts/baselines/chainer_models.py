"""ResNet-18 as a user of stock Chainer writes it, from Chainer's own links and functions."""

from __future__ import annotations

from functools import partial
from typing import Any

from baselines.workload import CLASSES
from edgeddl.chainer_compat import F, L, chainer


class ConvolutionBN(chainer.Chain):
    def __init__(self, c: int, k: int, ksize: int, stride: int = 1) -> None:
        super().__init__()
        with self.init_scope():
            self.convolution = L.Convolution2D(c, k, ksize, stride, ksize // 2, nobias=True)
            self.normalization = L.BatchNormalization(k)

    def forward(self, x: Any) -> Any:
        return self.normalization(self.convolution(x))


class BasicBlock(chainer.Chain):
    def __init__(self, c: int, k: int, stride: int) -> None:
        super().__init__()
        changes = stride != 1 or c != k
        with self.init_scope():
            self.first = ConvolutionBN(c, k, 3, stride)
            self.second = ConvolutionBN(k, k, 3)
            self.shortcut = ConvolutionBN(c, k, 1, stride) if changes else None

    def forward(self, x: Any) -> Any:
        h = self.second(F.relu(self.first(x)))
        return F.relu(h + (x if self.shortcut is None else self.shortcut(x)))


def resnet18(stem: str = "cifar") -> Any:
    """Build the network with one of edgeddl's two stems."""
    blocks = [
        BasicBlock(64, 64, 1), BasicBlock(64, 64, 1),
        BasicBlock(64, 128, 2), BasicBlock(128, 128, 1),
        BasicBlock(128, 256, 2), BasicBlock(256, 256, 1),
        BasicBlock(256, 512, 2), BasicBlock(512, 512, 1),
    ]  # fmt: skip
    head = [lambda h: F.average_pooling_2d(h, h.shape[2:]), L.Linear(512, CLASSES)]
    return chainer.Sequential(*_stem(stem), *blocks, *head)


def _stem(name: str) -> list[Any]:
    if name == "cifar":
        return [ConvolutionBN(3, 64, 3), F.relu]
    pool = partial(F.max_pooling_2d, ksize=3, stride=2, pad=1, cover_all=False)
    return [ConvolutionBN(3, 64, 7, 2), F.relu, pool]
