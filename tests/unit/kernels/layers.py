"""Layers for tests of convolution: those of the models, and unusual ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from edgeddl import kernels
from edgeddl.kernels.window import Window
from tests.unit.kernels import oracles

SAME = Window(3, 3, ph=1, pw=1)
HALF = Window(3, 3, 2, 2, 1, 1)
SKIP = Window(1, 1, 2, 2)

# "forward" computes y, "weight gradient" gW, "input gradient" gx
PASSES = ("forward", "weight gradient", "input gradient")


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@dataclass(frozen=True)
class Layer:
    """A convolution of x (N, C, H, W) to K channels."""

    shape: tuple[int, int, int, int]
    k: int
    window: Window
    groups: int = 1

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Random x, W and gy."""
        n, c, h, w = self.shape
        window = self.window
        return (
            random(self.shape, 1),
            random((self.k, c // self.groups, window.kh, window.kw), 2),
            random((n, self.k, *window.output_size(h, w)), 3),
        )

    @property
    def suits_winograd(self) -> bool:
        """Whether native kernels may use Winograd's algorithm for this layer."""
        w = self.window
        stride_1 = [Window(taps, taps, ph=w.ph, pw=w.pw) for taps in (3, 5)]
        fits = w in (*stride_1, Window(3, 3, 2, 2, 1, 1))
        return fits and self.groups == 1 and min(self.shape[1], self.k) >= 8

    def __str__(self) -> str:
        w = self.window
        window = f"{w.kh}x{w.kw} stride {w.sy},{w.sx} pad {w.ph},{w.pw} dilate {w.dy},{w.dx}"
        return f"{self.shape} to {self.k}: {window} groups {self.groups}"


def compute(layer: Layer, name: str, x: np.ndarray, W: np.ndarray, gy: np.ndarray) -> np.ndarray:
    """Compute one pass with the kernels."""
    if name == "forward":
        return kernels.convolution_forward(x, W, None, layer.window, layer.groups)
    if name == "weight gradient":
        return kernels.convolution_weight_gradient(x, gy, layer.window, layer.groups)
    return kernels.convolution_input_gradient(gy, W, layer.shape, layer.window, layer.groups)


def three_passes(layer: Layer, x: np.ndarray, W: np.ndarray, gy: np.ndarray) -> list[np.ndarray]:
    return [compute(layer, name, x, W, gy) for name in PASSES]


EXACT: dict[str, Callable[..., np.ndarray]] = {
    "forward": lambda layer, x, W, gy: oracles.convolution(x, W, layer.window, layer.groups),
    "weight gradient": lambda layer, x, W, gy: oracles.weight_gradient(
        x, gy, layer.window, layer.groups
    ),
    "input gradient": lambda layer, x, W, gy: oracles.input_gradient(
        gy, W, layer.shape, layer.window, layer.groups
    ),
}


def exact_and_limit(
    layer: Layer, name: str, x: np.ndarray, W: np.ndarray, gy: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result in float64, and the error limit of a sum of float32 products."""
    lengths = {
        "forward": W[0].size,
        "weight gradient": gy[:, 0].size,
        "input gradient": W[:, 0].size // layer.groups,
    }
    magnitudes = EXACT[name](layer, abs(x), abs(W), abs(gy))
    return EXACT[name](layer, x, W, gy), oracles.sum_limit(lengths[name], magnitudes)


def assert_right(
    layer: Layer, name: str, found: np.ndarray, exact: np.ndarray, limit: np.ndarray, native: bool
) -> None:
    """Check the error of every element and, for Winograd's algorithm, the relative RMS error."""
    assert found.shape == exact.shape and found.dtype == np.float32
    if not found.size:
        return
    error = found - exact
    if native and layer.suits_winograd:
        outputs = 2 if layer.window.kh == 5 else 4
        tile = outputs * layer.window.sy if name == "input gradient" else outputs
        limit = oracles.winograd_limit(limit, None if name == "weight gradient" else tile)
        rms, whole = np.sqrt(np.mean(error**2)), np.sqrt(np.mean(exact**2))
        assert rms <= oracles.WINOGRAD_RMS * whole, f"{name}: relative RMS {rms / whole}"
    excess = abs(error) / limit
    wrong = f"{name}: {(excess > 1).sum()} of {excess.size}, up to {excess.max()} limits"
    assert excess.max() <= 1, wrong


@cache
def exact_and_limit_of(layer: Layer, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The same for the layer's own arrays, computed once for all implementations."""
    return exact_and_limit(layer, name, *layer.arrays())


# Winograd's algorithm needs some tiles: batches are as small as it allows.
RESNET18 = [
    Layer((1, 3, 32, 32), 64, SAME),
    Layer((1, 64, 32, 32), 64, SAME),
    Layer((1, 64, 32, 32), 128, HALF),
    Layer((1, 64, 32, 32), 128, SKIP),
    Layer((1, 128, 16, 16), 128, SAME),
    Layer((1, 128, 16, 16), 256, HALF),
    Layer((1, 128, 16, 16), 256, SKIP),
    Layer((2, 256, 8, 8), 256, SAME),
    Layer((2, 256, 8, 8), 512, HALF),
    Layer((2, 256, 8, 8), 512, SKIP),
    Layer((7, 512, 4, 4), 512, SAME),
]
RESNET18_IMAGENET_STEM = [
    Layer((1, 3, 32, 32), 64, Window(7, 7, 2, 2, 3, 3)),
    Layer((2, 64, 8, 8), 64, SAME),
    Layer((2, 64, 8, 8), 128, HALF),
    Layer((2, 64, 8, 8), 128, SKIP),
    Layer((7, 128, 4, 4), 128, SAME),
    Layer((7, 128, 4, 4), 256, HALF),
    Layer((7, 128, 4, 4), 256, SKIP),
    Layer((7, 256, 2, 2), 256, SAME),
    Layer((7, 256, 2, 2), 512, HALF),
    Layer((7, 256, 2, 2), 512, SKIP),
    Layer((7, 512, 1, 1), 512, SAME),
]
RESNET9 = [
    Layer((1, 3, 32, 32), 32, SAME),
    Layer((1, 32, 32, 32), 64, SAME),
    Layer((1, 64, 16, 16), 64, SAME),
    Layer((1, 64, 16, 16), 128, SAME),
    Layer((2, 128, 8, 8), 256, SAME),
    Layer((7, 256, 4, 4), 256, SAME),
]
MODEL_LAYERS = [*RESNET18, *RESNET18_IMAGENET_STEM, *RESNET9]

ODD_LAYERS = [
    # one pixel, one channel, one image
    Layer((1, 1, 1, 1), 1, Window(1, 1)),
    Layer((1, 1, 1, 1), 1, SAME),
    Layer((1, 3, 2, 2), 5, SAME),
    Layer((4, 6, 5, 5), 7, Window(1, 1)),
    # channels and sizes that are not multiples of vectors or tiles, for each algorithm
    Layer((3, 5, 7, 7), 17, SAME),
    Layer((2, 17, 31, 33), 30, SAME),
    Layer((1, 30, 33, 31), 17, Window(3, 3)),
    Layer((2, 17, 33, 7), 9, Window(3, 3, ph=2, pw=2)),
    Layer((5, 33, 7, 2), 8, SAME),
    Layer((2, 17, 31, 31), 30, HALF),
    Layer((2, 30, 33, 33), 17, SKIP),
    Layer((3, 3, 31, 31), 30, Window(5, 5, ph=2, pw=2)),
    Layer((2, 17, 31, 33), 30, Window(5, 5, ph=2, pw=2)),
    Layer((2, 30, 9, 14), 9, Window(5, 5, ph=4, pw=0)),
    Layer((1, 3, 33, 33), 5, Window(11, 11, 4, 4, 2, 2)),
    Layer((2, 30, 9, 9), 17, Window(7, 7, ph=3, pw=3)),
    Layer((3, 40, 5, 5), 2, Window(3, 3)),
    Layer((2, 2, 5, 5), 40, SAME),
    # several blocks of tiles, with weights too large to be transformed at once
    Layer((3, 150, 27, 27), 131, SAME),
    Layer((2, 150, 15, 15), 131, Window(5, 5, ph=1, pw=3)),
    # windows, strides and padding that differ by axis
    Layer((3, 17, 7, 2), 5, Window(3, 2, ph=1, pw=1)),
    Layer((2, 3, 7, 9), 17, Window(5, 1, 2, 3, 2, 0)),
    Layer((2, 3, 9, 7), 2, Window(2, 4, 1, 2, 0, 3)),
    Layer((3, 16, 8, 8), 16, Window(3, 3, ph=2, pw=0)),
    # strides that skip pixels, windows entirely in the padding
    Layer((2, 5, 7, 7), 3, Window(3, 3, 3, 3, 1, 1)),
    Layer((2, 5, 4, 4), 3, Window(2, 2, 3, 3)),
    Layer((2, 4, 3, 3), 3, Window(2, 2, ph=2, pw=3)),
    Layer((2, 8, 7, 7), 8, Window(3, 3, ph=4, pw=5)),
    Layer((1, 5, 7, 7), 5, Window(1, 1, 3, 2, 2, 1)),
    # dilation
    Layer((2, 5, 31, 7), 17, Window(3, 3, ph=2, pw=2, dy=2, dx=2)),
    Layer((2, 17, 9, 9), 30, Window(3, 2, 2, 1, 3, 0, dy=3, dx=2)),
    # groups, and depthwise
    Layer((2, 6, 7, 7), 10, SAME, 2),
    Layer((2, 34, 7, 9), 51, HALF, 17),
    Layer((2, 32, 8, 8), 64, Window(1, 1), 4),
    # groups narrower than a vector, all together as wide as a register tile
    Layer((2, 16, 5, 5), 64, SAME, 8),
    Layer((2, 8, 5, 5), 16, SAME, 4),
    Layer((2, 8, 5, 5), 8, SAME, 4),
    Layer((2, 30, 7, 7), 15, Window(3, 3, 2, 1, 1, 2, dy=2, dx=1), 5),
    Layer((2, 17, 31, 7), 17, SAME, 17),
    Layer((1, 30, 33, 33), 30, HALF, 30),
    Layer((2, 64, 7, 7), 64, Window(5, 3, 1, 2, 4, 1, dy=2, dx=1), 64),
    # pixels that lie a multiple of 2 KB apart, and rows of more than one strip
    Layer((1, 512, 6, 30), 512, SAME, 512),
    Layer((2, 5, 7, 7), 10, SAME, 5),
    # no images
    Layer((0, 3, 5, 5), 4, SAME),
    Layer((0, 8, 8, 8), 8, SAME),
    Layer((0, 8, 5, 5), 8, SAME, 8),
]
LAYERS = [*MODEL_LAYERS, *ODD_LAYERS]
