"""A generated data set of ten shapes, to train on when no other is at hand.

Each 32x32 image shows one shape of varying place, size, turn and colours over a shaded background
with spots and noise. A shape is as often lighter as darker than what is around it, so no weighted
sum of pixels tells the classes apart: a network has to find the outline.

An image depends on its number in its split only. It is computed from hashes by operations that IEEE
754 rounds exactly (no sine, no logarithm, no sum in an unspecified order), so that boards and
laptops get the same bytes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from edgeddl.data.images import Float32s, ImageSet, UInt8s
from edgeddl.data.outlines import OUTLINES
from edgeddl.data.randomness import derive_key, draw_bits, draw_uniform

Split = Literal["train", "test"]

CLASSES = tuple(OUTLINES)
COUNTS: dict[Split, int] = {"train": 10_000, "test": 2_000}
# Of the 10,000 training images, as fractions of 255.
MEAN = (0.4934, 0.4941, 0.4948)
STD = (0.2307, 0.2297, 0.2308)

_SEED = 1
_SIZE, _CHANNELS = 32, 3
_SPLITS: tuple[Split, ...] = ("train", "test")
_CHUNK = 100  # images painted at a time: the arrays then fit a processor's cache
_PIXELS = _SIZE * _SIZE

# How far images differ. With these, resnet9 gets 99 % of 500 test images right after one pass over
# the training images in batches of 32, 92 % in batches of 128 (one run each); ridge regression on
# the pixels gets 25 % at best.
_RADIUS = (10.0, 13.0)  # of the shape, in pixels
_OFFSET = 4.0  # of its centre from the image's, in pixels
_HALF_TURN_TANGENT = 0.15  # turned by up to 17 degrees either way
_CONTRAST = (90.0, 150.0)  # between shape and background in each channel, of 255
_BACKGROUND = (40.0, 215.0)
_SLOPE = 1.5  # of the background's shading, per pixel
_NOISE = (2.0, 10.0)  # largest change of a pixel
_SPOTS = 2
_SPOT_RADIUS = (1.0, 2.0)

_CENTRED = np.arange(_SIZE, dtype=np.float32) - np.float32((_SIZE - 1) / 2)
_X = np.tile(_CENTRED, _SIZE)
_Y = np.repeat(_CENTRED, _SIZE)


def generate(split: Split, count: int) -> ImageSet:
    """The first `count` images of a split."""
    labels = _choose_labels(split, count)
    images = np.empty((count, _SIZE, _SIZE, _CHANNELS), dtype=np.uint8)
    for start in range(0, count, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, count))
        images[numbers[0] : numbers[-1] + 1] = _paint(_Draws(split, numbers), labels[numbers])
    return ImageSet(images, labels)


def _choose_labels(split: Split, count: int) -> npt.NDArray[np.int32]:
    """Every ten images in a row show every class once, in random order."""
    blocks = -(-count // len(CLASSES))
    keys = draw_bits(_derive_key(split, "label"), np.arange(blocks * len(CLASSES)))
    order = np.argsort(keys.reshape(blocks, len(CLASSES)), axis=1, kind="stable")
    return order.ravel()[:count].astype(np.int32)


def _derive_key(split: Split, purpose: str) -> int:
    return derive_key(_SEED, _SPLITS.index(split), *purpose.encode())


class _Draws:
    """Random numbers for some images of a split; each purpose has its own."""

    def __init__(self, split: Split, numbers: npt.NDArray[np.int64]) -> None:
        self._split = split
        self._numbers = numbers

    def scalars(self, purpose: str, low: float, high: float) -> Float32s:
        """One number an image: (n, 1)."""
        return draw_uniform(_derive_key(self._split, purpose), self._numbers[:, None], low, high)

    def colours(self, purpose: str, low: float, high: float) -> Float32s:
        """One number a channel: (n, 3, 1)."""
        counters = self._counters(_CHANNELS)[:, :, None]
        return draw_uniform(_derive_key(self._split, purpose), counters, low, high)

    def bytes(self, purpose: str, count: int) -> UInt8s:
        """Bytes for each image: (n, count), count divisible by 8."""
        bits = draw_bits(_derive_key(self._split, purpose), self._counters(count // 8))
        little_endian = bits.astype(np.dtype("<u8"), copy=False)
        return little_endian.view(np.uint8)

    def _counters(self, count: int) -> npt.NDArray[np.int64]:
        return self._numbers[:, None] * count + np.arange(count)


def _paint(draws: _Draws, labels: npt.NDArray[np.int32]) -> UInt8s:
    """Images as (n, 32, 32, 3); painted channel by channel on a canvas (n, 3, 1024)."""
    colour = draws.colours("background", *_BACKGROUND)
    canvas = colour + draws.colours("slope x", -_SLOPE, _SLOPE) * _X
    canvas += draws.colours("slope y", -_SLOPE, _SLOPE) * _Y
    for spot in range(_SPOTS):
        name = f"spot {spot}"
        _lay(canvas, _spot_distance(draws, name), _contrasting(draws, name, colour))
    _lay(canvas, _shape_distance(draws, labels), _contrasting(draws, "shape", colour))
    canvas += _noise(draws)
    pixels: UInt8s = np.clip(np.rint(canvas), 0, 255).astype(np.uint8)
    return pixels.reshape(-1, _CHANNELS, _SIZE, _SIZE).transpose(0, 2, 3, 1)


def _lay(canvas: Float32s, distance: Float32s, colour: Float32s) -> None:
    """Paint a colour inside an outline; `distance` is how far outside a pixel lies, in pixels."""
    cover = np.clip(0.5 - distance, 0, 1)[:, None, :]
    canvas += cover * (colour - canvas)


def _contrasting(draws: _Draws, name: str, colour: Float32s) -> Float32s:
    """A colour lighter or darker than the given one; a channel without room goes the other way."""
    change = draws.colours(f"{name} contrast", *_CONTRAST)
    up = draws.scalars(f"{name} sign", -1, 1)[:, :, None] > 0
    up = (up | (colour < change)) & (colour + change <= 255)
    return np.where(up, colour + change, colour - change)


def _spot_distance(draws: _Draws, name: str) -> Float32s:
    u = _X - draws.scalars(f"{name} x", -15, 15)
    v = _Y - draws.scalars(f"{name} y", -15, 15)
    return np.sqrt(u * u + v * v) - draws.scalars(f"{name} radius", *_SPOT_RADIUS)


def _shape_distance(draws: _Draws, labels: npt.NDArray[np.int32]) -> Float32s:
    radius = draws.scalars("radius", *_RADIUS)
    x = _X - draws.scalars("x", -_OFFSET, _OFFSET)
    y = _Y - draws.scalars("y", -_OFFSET, _OFFSET)
    u, v = _turn(draws.scalars("turn", -_HALF_TURN_TANGENT, _HALF_TURN_TANGENT), x, y)
    u, v = u / radius, v / radius
    distance = np.empty_like(u)
    for label, outline in enumerate(OUTLINES.values()):
        chosen = np.flatnonzero(labels == label)
        distance[chosen] = outline(u[chosen], v[chosen])
    return distance * radius


def _turn(tangent: Float32s, x: Float32s, y: Float32s) -> tuple[Float32s, Float32s]:
    """Rotate by an angle given as the tangent of its half: needs neither sine nor cosine."""
    square: Float32s = tangent * tangent
    cosine: Float32s = (1 - square) / (1 + square)
    sine: Float32s = 2 * tangent / (1 + square)
    return cosine * x - sine * y, sine * x + cosine * y


def _noise(draws: _Draws) -> Float32s:
    """Uniform noise, as strong in all of an image."""
    unit = draws.bytes("noise", _CHANNELS * _PIXELS).astype(np.float32) * np.float32(2 / 255) - 1
    unit *= draws.scalars("noise strength", *_NOISE)
    return unit.reshape(-1, _CHANNELS, _PIXELS)
