"""Labelled images as bytes, and their conversion to a network's input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

UInt8s = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Float32s = npt.NDArray[np.float32]
ImageShape = tuple[int, int, int]  # channels, height, width


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of shape (count, height, width, channels), C-contiguous, and their labels."""

    images: UInt8s
    labels: Int32s

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> ImageShape:
        """Shape of one image as a network takes it."""
        _, height, width, channels = self.images.shape
        return channels, height, width

    def first(self, count: int) -> ImageSet:
        """The first images only; copied, so that the memory of the rest can be freed."""
        if count == len(self):
            return self
        if isinstance(self.images, np.memmap):  # a copy would need memory
            return ImageSet(self.images[:count], self.labels[:count])
        return ImageSet(self.images[:count].copy(), self.labels[:count].copy())


class Images(NamedTuple):
    """Training and test images. verified: whether they match published checksums."""

    train: ImageSet
    test: ImageSet
    verified: bool


class Normaliser:
    """Scales pixels from 0..255 to mean 0 and standard deviation 1 per channel."""

    def __init__(self, mean: Float32s, std: Float32s, image_shape: ImageShape) -> None:
        self.image_shape = image_shape
        # One row of pixels wide: NumPy's inner loop then runs over 96 numbers (32 pixels) instead
        # of 3.
        width = image_shape[2]
        self._scale = np.tile((1 / (255 * std)).astype(np.float32), width)
        self._shift = np.tile((-mean / std).astype(np.float32), width)

    def write(self, images: UInt8s, rows: Float32s) -> None:
        """Normalise images (n, height, width, channels) into (n, height, width * channels)."""
        np.multiply(images.reshape(rows.shape), self._scale, out=rows)
        rows += self._shift


def normalise(images: UInt8s, mean: Float32s, std: Float32s) -> Float32s:
    """Pixels (n, height, width, channels) as float32, viewed as (n, channels, height, width)."""
    count, height, width, channels = images.shape
    rows = np.empty((count, height, width * channels), dtype=np.float32)
    Normaliser(mean, std, (channels, height, width)).write(images, rows)
    return as_pixels(rows, channels).transpose(0, 3, 1, 2)


def as_pixels(rows: Float32s, channels: int) -> Float32s:
    """Rows (n, height, width * channels) as (n, height, width, channels), without a copy."""
    count, height, length = rows.shape
    return rows.reshape(count, height, length // channels, channels)
