"""Random crop, flip and cutout of whole batches.

The draws for an image depend on the seed, the epoch and the image's position in the epoch only: a
run gives the same pixels on one rank as on five, at any batch size, and when it is resumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeddl.data.images import CHANNELS, IMAGE_SIZE, ROW, Float32s, Normaliser, UInt8s
from edgeddl.data.randomness import derive_key, draw_integers

_STREAM = 2  # keeps these draws apart from the order of the images
_ROW_DRAW, _COLUMN_DRAW, _FLIP_DRAW, _CUTOUT_ROW_DRAW, _CUTOUT_COLUMN_DRAW = range(5)


@dataclass(frozen=True)
class Augmentation:
    """What is done to training images; the default is the usual recipe for CIFAR-10.

    crop_padding: a 32x32 window is cut from the image with that many pixels of the mean colour
        around it; 0 leaves the image in place.
    flip: mirror every second image, on average, left to right.
    cutout: side of a square of the mean colour laid over the image, centred anywhere in it
        (DeVries and Taylor 2017 use 16 for CIFAR-10); 0 lays none.
    """

    crop_padding: int = 4
    flip: bool = True
    cutout: int = 0


NO_AUGMENTATION = Augmentation(crop_padding=0, flip=False, cutout=0)


class Augmenter:
    """Augments and normalises up to `capacity` images at a time, without allocating for each."""

    def __init__(
        self, augmentation: Augmentation, normaliser: Normaliser, *, seed: int, capacity: int
    ) -> None:
        self._augmentation = augmentation
        self._normaliser = normaliser
        self._seed = seed
        margin = augmentation.crop_padding
        # The border stays 0, which after normalisation is the mean colour.
        shape = (capacity, IMAGE_SIZE + 2 * margin, ROW + 2 * margin * CHANNELS)
        self._padded = np.zeros(shape, dtype=np.float32)

    def write(
        self, images: UInt8s, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s
    ) -> None:
        """Augment images (n, 32, 32, 3) at these positions of the epoch into `rows` (n, 32, 96)."""
        if self._augmentation.crop_padding:
            self._crop(images, epoch, positions, rows)
        else:
            self._normaliser.write(images, rows)
        if self._augmentation.flip:
            self._flip(epoch, positions, rows)
        if self._augmentation.cutout:
            self._cut_out(epoch, positions, rows)

    def _draw(
        self, draw: int, epoch: int, positions: npt.NDArray[np.int64], bound: int
    ) -> npt.NDArray[np.intp]:
        return draw_integers(derive_key(self._seed, _STREAM, epoch, draw), positions, bound)

    def _crop(
        self, images: UInt8s, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s
    ) -> None:
        margin = self._augmentation.crop_padding
        padded = self._padded[: len(images)]
        left = margin * CHANNELS
        inside = padded[:, margin : margin + IMAGE_SIZE, left : left + ROW]
        self._normaliser.write(images, inside)
        # Every place a crop can start from, as a view: one indexing then copies whole rows.
        windows = np.lib.stride_tricks.sliding_window_view(padded, (IMAGE_SIZE, ROW), axis=(1, 2))
        top = self._draw(_ROW_DRAW, epoch, positions, 2 * margin + 1)
        column = self._draw(_COLUMN_DRAW, epoch, positions, 2 * margin + 1)
        rows[...] = windows[np.arange(len(images)), top, column * CHANNELS]

    def _flip(self, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s) -> None:
        flipped = np.flatnonzero(self._draw(_FLIP_DRAW, epoch, positions, 2))
        pixels = rows.reshape(-1, IMAGE_SIZE, IMAGE_SIZE, CHANNELS)
        pixels[flipped] = pixels[flipped, :, ::-1]

    def _cut_out(self, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s) -> None:
        vertical = self._cut_lines(_CUTOUT_ROW_DRAW, epoch, positions)
        horizontal = self._cut_lines(_CUTOUT_COLUMN_DRAW, epoch, positions)
        pixels = rows.reshape(-1, IMAGE_SIZE, IMAGE_SIZE, CHANNELS)
        pixels[vertical[:, :, None] & horizontal[:, None, :]] = 0

    def _cut_lines(
        self, draw: int, epoch: int, positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """For each image, which of its 32 rows (or columns) the square covers."""
        start = self._draw(draw, epoch, positions, IMAGE_SIZE) - self._augmentation.cutout // 2
        line = np.arange(IMAGE_SIZE)
        offset = line[None, :] - start[:, None]
        return (offset >= 0) & (offset < self._augmentation.cutout)
