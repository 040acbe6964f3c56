"""Random crop, flip and cutout of whole batches.

The draws for an image depend only on the seed, the epoch and the image's position in the epoch. A
run therefore gives the same pixels on any number of ranks, at any batch size, and when resumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeddl.data.images import Float32s, Normaliser, UInt8s, as_pixels
from edgeddl.data.randomness import derive_key, draw_integers

_STREAM = 2  # independent of the draws for the order of the images
_ROW_DRAW, _COLUMN_DRAW, _FLIP_DRAW, _CUTOUT_ROW_DRAW, _CUTOUT_COLUMN_DRAW = range(5)


@dataclass(frozen=True)
class Augmentation:
    """How training images are augmented; the default is the usual recipe for CIFAR-10.

    crop_padding: pad the image with this many pixels of the mean colour, then crop it at random to
        its original size; 0 disables cropping.
    flip: flip an image horizontally with probability 1/2.
    cutout: side of a square of the mean colour, centred at a random pixel (DeVries and Taylor 2017
        use 16 for CIFAR-10); 0 disables cutout.
    """

    crop_padding: int = 4
    flip: bool = True
    cutout: int = 0


NO_AUGMENTATION = Augmentation(crop_padding=0, flip=False, cutout=0)


class Augmenter:
    """Augments and normalises up to `capacity` images at a time, in preallocated memory."""

    def __init__(
        self, augmentation: Augmentation, normaliser: Normaliser, *, seed: int, capacity: int
    ) -> None:
        self._augmentation = augmentation
        self._normaliser = normaliser
        self._seed = seed
        self._channels, self._height, self._width = normaliser.image_shape
        margin = 2 * augmentation.crop_padding
        # The border stays 0, which after normalisation is the mean colour.
        shape = (capacity, self._height + margin, (self._width + margin) * self._channels)
        self._padded = np.zeros(shape, dtype=np.float32)

    def write(
        self, images: UInt8s, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s
    ) -> None:
        """Augment the images at these positions of the epoch into `rows`.

        images: (n, height, width, channels); rows: (n, height, width * channels)
        """
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
        left, size = margin * self._channels, rows.shape[1:]
        inside = padded[:, margin : margin + size[0], left : left + size[1]]
        self._normaliser.write(images, inside)
        # A view of all possible crops: one indexing operation then copies whole rows.
        windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis=(1, 2))
        top = self._draw(_ROW_DRAW, epoch, positions, 2 * margin + 1)
        column = self._draw(_COLUMN_DRAW, epoch, positions, 2 * margin + 1)
        rows[...] = windows[np.arange(len(images)), top, column * self._channels]

    def _flip(self, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s) -> None:
        flipped = np.flatnonzero(self._draw(_FLIP_DRAW, epoch, positions, 2))
        pixels = as_pixels(rows, self._channels)
        pixels[flipped] = pixels[flipped, :, ::-1]

    def _cut_out(self, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s) -> None:
        vertical = self._cut_lines(_CUTOUT_ROW_DRAW, epoch, positions, self._height)
        horizontal = self._cut_lines(_CUTOUT_COLUMN_DRAW, epoch, positions, self._width)
        pixels = as_pixels(rows, self._channels)
        pixels[vertical[:, :, None] & horizontal[:, None, :]] = 0

    def _cut_lines(
        self, draw: int, epoch: int, positions: npt.NDArray[np.int64], size: int
    ) -> npt.NDArray[np.bool_]:
        """For each image, which of its `size` rows (or columns) the square covers."""
        start = self._draw(draw, epoch, positions, size) - self._augmentation.cutout // 2
        offset = np.arange(size)[None, :] - start[:, None]
        return (offset >= 0) & (offset < self._augmentation.cutout)
