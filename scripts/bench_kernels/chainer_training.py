"""Worker: training steps of stock Chainer, with the same network from Chainer's own links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rivals.serve import serve_steps

from bench_kernels.workload import CLASSES, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, make_batch
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


def resnet18() -> Any:
    """CIFAR ResNet-18."""
    blocks = [
        BasicBlock(64, 64, 1), BasicBlock(64, 64, 1),
        BasicBlock(64, 128, 2), BasicBlock(128, 128, 1),
        BasicBlock(128, 256, 2), BasicBlock(256, 256, 1),
        BasicBlock(256, 512, 2), BasicBlock(512, 512, 1),
    ]  # fmt: skip
    head = [lambda h: F.average_pooling_2d(h, h.shape[2:]), L.Linear(512, CLASSES)]
    return chainer.Sequential(ConvolutionBN(3, 64, 3), F.relu, *blocks, *head)


def prepare(batch: int) -> Callable[[], None]:
    x, t = make_batch(batch)
    model = resnet18()
    optimizer = chainer.optimizers.MomentumSGD(LEARNING_RATE, MOMENTUM).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(WEIGHT_DECAY))

    def step() -> None:
        optimizer.update(lambda: F.softmax_cross_entropy(model(x), t))

    return step


if __name__ == "__main__":
    chainer.global_config.train = True
    serve_steps(prepare)
