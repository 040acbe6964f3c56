"""The convolutions that are measured individually."""

from __future__ import annotations

from dataclasses import dataclass, replace

PASSES = ("forward", "input gradient", "weight gradient")


@dataclass(frozen=True)
class Layer:
    """A convolution of `batch` square images: c channels to k, a ksize x ksize window."""

    c: int
    k: int
    size: int
    ksize: int
    stride: int = 1
    groups: int = 1
    batch: int = 32
    pad: int | None = None  # default: half the window

    @property
    def name(self) -> str:
        kind = "depthwise " if self.is_depthwise else ""
        channels = f"{self.c}" if self.c == self.k else f"{self.c}-{self.k}"
        stride = f" /{self.stride}" if self.stride > 1 else ""
        return f"{kind}{self.ksize}x{self.ksize}{stride}, {channels}, {self.size}x{self.size}"

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.c > 1

    @property
    def padding(self) -> int:
        return self.ksize // 2 if self.pad is None else self.pad

    @property
    def output_size(self) -> int:
        return (self.size + 2 * self.padding - self.ksize) // self.stride + 1

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.c, self.size, self.size

    @property
    def W_shape(self) -> tuple[int, int, int, int]:
        return self.k, self.c // self.groups, self.ksize, self.ksize

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.k, self.output_size, self.output_size

    @property
    def flop(self) -> int:
        """Nominal operations of each pass; an algorithm may need fewer."""
        pixels = self.batch * self.output_size**2
        return 2 * pixels * self.k * (self.c // self.groups) * self.ksize**2

    @property
    def passes(self) -> tuple[str, ...]:
        """Passes to measure; the first layer of a network (3 channels) needs no input gradient."""
        return tuple(p for p in PASSES if self.c > 3 or p != "input gradient")


STAGES = ((64, 32), (128, 16), (256, 8), (512, 4))  # channels and size, CIFAR ResNet-18

RESNET18 = [
    Layer(3, 64, 32, 3),
    *(Layer(c, c, size, 3) for c, size in STAGES),
    *(Layer(c, 2 * c, size, 3, stride=2) for c, size in STAGES[:3]),
    *(Layer(c, 2 * c, size, 1, stride=2) for c, size in STAGES[:3]),
]
OTHERS = [
    Layer(32, 32, 112, 3, groups=32, batch=8),  # MobileNet's
    Layer(144, 144, 56, 3, groups=144, batch=8),
    Layer(144, 144, 56, 3, stride=2, groups=144, batch=8),
    Layer(512, 512, 14, 3, groups=512, batch=8),
    Layer(256, 256, 14, 1),
    Layer(64, 64, 16, 5),
    Layer(3, 64, 64, 7, stride=2),  # ResNet's stem for large images
    Layer(3, 64, 224, 11, stride=4, pad=2),  # AlexNet's
]


def choose_layers(text: str, batch: int | None) -> list[Layer]:
    """Return the layers whose name contains `text`, with another batch size if given."""
    found = [layer for layer in RESNET18 + OTHERS if text in layer.name]
    return [replace(layer, batch=batch) for layer in found] if batch else found
