"""Labelled images as bytes, and their conversion to what a network takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IMAGE_SIZE = 32
CHANNELS = 3
ROW = IMAGE_SIZE * CHANNELS  # numbers in one line of an image

UInt8s = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of shape (count, 32, 32, 3), C-contiguous, and their labels."""

    images: UInt8s
    labels: Int32s

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> ImageSet:
        """The first images only; copied, so that the others' memory can be freed."""
        if count == len(self):
            return self
        return ImageSet(self.images[:count].copy(), self.labels[:count].copy())


class Images(NamedTuple):
    """Images to train on and to test with; verified: they match published checksums."""

    train: ImageSet
    test: ImageSet
    verified: bool


class Normaliser:
    """Turns pixels of 0..255 into numbers of mean 0 and deviation 1 per channel."""

    def __init__(self, mean: Float32s, std: Float32s) -> None:
        # One row of pixels wide: NumPy's inner loop then runs over 96 numbers instead of 3.
        self._scale = np.tile((1 / (255 * std)).astype(np.float32), IMAGE_SIZE)
        self._shift = np.tile((-mean / std).astype(np.float32), IMAGE_SIZE)

    def write(self, images: UInt8s, rows: Float32s) -> None:
        """Normalise images (n, 32, 32, 3) into `rows`, (n, 32, 96)."""
        np.multiply(images.reshape(rows.shape), self._scale, out=rows)
        rows += self._shift


def normalise(images: UInt8s, mean: Float32s, std: Float32s) -> Float32s:
    """Pixels (n, 32, 32, 3) as float32, shaped (n, 3, 32, 32) with channels last in memory."""
    rows = np.empty((len(images), IMAGE_SIZE, ROW), dtype=np.float32)
    Normaliser(mean, std).write(images, rows)
    return channels_last(rows)


def channels_last(rows: Float32s) -> Float32s:
    """Rows (n, 32, 96) seen as (n, 3, 32, 32) without a copy."""
    return rows.reshape(-1, IMAGE_SIZE, IMAGE_SIZE, CHANNELS).transpose(0, 3, 1, 2)
