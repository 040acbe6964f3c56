"""edgeddl's networks in PyTorch: the same layers under the same names.

`stage1/0/first/convolution/W` in edgeddl is `stage1.0.first.convolution.weight` here, so parameters
are matched by name (see `torch_name`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OUTPUT_SCALE = 0.125  # of edgeddl's ResNet-9
CHAINER_EPS = 2e-5  # of batch normalisation; PyTorch's default is 1e-5


def torch_name(name: str) -> str:
    """Return PyTorch's name of an edgeddl parameter."""
    path, _, leaf = name.rpartition("/")
    leaves = {"W": "weight", "b": "bias", "gamma": "weight", "beta": "bias"}
    return f"{path}/{leaves[leaf]}".replace("/", ".")


class ConvolutionBN(nn.Module):
    def __init__(self, c: int, k: int, ksize: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(c, k, ksize, stride, padding=ksize // 2, bias=False)
        self.normalization = nn.BatchNorm2d(k, eps=CHAINER_EPS)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class BasicBlock(nn.Module):
    def __init__(self, c: int, k: int, stride: int) -> None:
        super().__init__()
        changes = stride != 1 or c != k
        self.first = ConvolutionBN(c, k, 3, stride)
        self.second = ConvolutionBN(k, k, 3)
        self.shortcut = ConvolutionBN(c, k, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self, classes: int = 10, stem: str = "cifar") -> None:
        super().__init__()
        self.pools = stem == "imagenet"
        self.stem = ConvolutionBN(3, 64, *((7, 2) if self.pools else (3, 1)))
        self.stage1 = _stage(64, 64, 1)
        self.stage2 = _stage(64, 128, 2)
        self.stage3 = _stage(128, 256, 2)
        self.stage4 = _stage(256, 512, 2)
        self.head = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.stem(x))
        if self.pools:
            h = F.max_pool2d(h, 3, stride=2, padding=1)
        h = self.stage4(self.stage3(self.stage2(self.stage1(h))))
        return self.head(h.mean((2, 3)))


def _stage(c: int, k: int, stride: int) -> nn.Module:
    return nn.Sequential(BasicBlock(c, k, stride), BasicBlock(k, k, 1))


class Residual(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.first = ConvolutionBN(k, k, 3)
        self.second = ConvolutionBN(k, k, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.second(F.relu(self.first(x))))


class ResNet9(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = ConvolutionBN(3, 32, 3)
        self.layer1 = ConvolutionBN(32, 64, 3)
        self.residual1 = Residual(64)
        self.layer2 = ConvolutionBN(64, 128, 3)
        self.layer3 = ConvolutionBN(128, 256, 3)
        self.residual3 = Residual(256)
        self.head = nn.Linear(256, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.stem(x))
        h = self.residual1(F.max_pool2d(F.relu(self.layer1(h)), 2))
        h = F.max_pool2d(F.relu(self.layer2(h)), 2)
        h = self.residual3(F.max_pool2d(F.relu(self.layer3(h)), 2))
        return OUTPUT_SCALE * self.head(h.amax((2, 3)))


MODELS: dict[str, type[nn.Module]] = {"resnet18": ResNet18, "resnet9": ResNet9}
MEMORY_FORMATS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
