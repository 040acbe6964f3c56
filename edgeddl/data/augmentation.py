"""Random crop, flip, colour jitter and cutout of whole batches.

The draws for an image depend only on the seed, the epoch and the image's position in the epoch. A
run therefore gives the same pixels on any number of ranks, at any batch size, and when resumed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from edgeddl.data.images import Float32s, ImageShape, Normaliser, UInt8s, as_pixels
from edgeddl.data.randomness import derive_key, draw_integers, draw_uniform

_STREAM = 2  # independent of the draws for the order of the images
_ROW_DRAW, _COLUMN_DRAW, _FLIP_DRAW, _CUTOUT_ROW_DRAW, _CUTOUT_COLUMN_DRAW = range(5)
_AREA_DRAW, _ASPECT_DRAW, _TOP_DRAW, _LEFT_DRAW = range(5, 9)
_BRIGHTNESS_DRAW, _CONTRAST_DRAW, _SATURATION_DRAW = range(9, 12)

# Images with a longer shorter side get resized crops and colour jitter by default.
LARGEST_SMALL_SIDE = 64
# Szegedy et al. (2015): the aspect ratio of a resized crop is between 3/4 and 4/3.
_ASPECT = 4 / 3


@dataclass(frozen=True)
class Augmentation:
    """How training images are augmented; the default is the usual recipe for CIFAR-10.

    crop_padding: pad the image with this many pixels of the mean colour, then crop it at random to
        its original size; 0 disables cropping.
    flip: flip an image horizontally with probability 1/2.
    cutout: side of a square of the mean colour, centred at a random pixel (DeVries and Taylor 2017
        use 16 for CIFAR-10); 0 disables cutout.
    smallest_area: crop a random part of at least this fraction of the image's area and resize it
        to the image's size, instead of padding; 1 disables it.
    jitter: change brightness by up to this many standard deviations of a channel, contrast and
        saturation by up to this fraction; 0 disables it.
    """

    crop_padding: int = 4
    flip: bool = True
    cutout: int = 0
    smallest_area: float = 1.0
    jitter: float = 0.0


NO_AUGMENTATION = Augmentation(crop_padding=0, flip=False, cutout=0)
# ImageNet's usual smallest area, 0.08, suits a million images and 90 epochs. Crops of smaller data
# sets should show more of the object.
LARGE_IMAGES = Augmentation(crop_padding=0, smallest_area=0.25, jitter=0.2)


def usual_augmentation(image_shape: ImageShape) -> Augmentation:
    """The default for images of this shape."""
    return Augmentation() if min(image_shape[1:]) <= LARGEST_SMALL_SIDE else LARGE_IMAGES


class Augmenter:
    """Augments and normalises up to `capacity` images at a time, in preallocated memory.

    threads: how many resize images; Pillow releases the GIL meanwhile.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        normaliser: Normaliser,
        *,
        seed: int,
        capacity: int,
        threads: int = 1,
    ) -> None:
        self._augmentation = augmentation
        self._normaliser = normaliser
        self._seed = seed
        self._channels, self._height, self._width = normaliser.image_shape
        self._pool = ThreadPoolExecutor(threads, "edgeddl-resize")  # starts threads when used
        margin = 2 * augmentation.crop_padding
        # The border stays 0, which after normalisation is the mean colour.
        shape = (
            capacity if margin else 0,
            self._height + margin,
            (self._width + margin) * self._channels,
        )
        self._padded = np.zeros(shape, dtype=np.float32)

    def write(
        self, images: UInt8s, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s
    ) -> None:
        """Augment the images at these positions of the epoch into `rows`.

        images: (n, height, width, channels); rows: (n, height, width * channels)
        """
        if self._augmentation.smallest_area < 1:
            self._normaliser.write(self._crop_resized(images, epoch, positions), rows)
        elif self._augmentation.crop_padding:
            self._crop(images, epoch, positions, rows)
        else:
            self._normaliser.write(images, rows)
        if self._augmentation.flip:
            self._flip(epoch, positions, rows)
        if self._augmentation.jitter:
            self._jitter(epoch, positions, rows)
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

    def _draw_between(
        self, draw: int, epoch: int, positions: npt.NDArray[np.int64], low: float, high: float
    ) -> Float32s:
        return draw_uniform(derive_key(self._seed, _STREAM, epoch, draw), positions, low, high)

    def _crop_resized(self, images: UInt8s, epoch: int, positions: npt.NDArray[np.int64]) -> UInt8s:
        """Random parts of the images, resized to their size."""
        area = self._draw_between(
            _AREA_DRAW, epoch, positions, self._augmentation.smallest_area, 1.0
        )
        # A ratio is as likely as its reciprocal.
        change = self._draw_between(_ASPECT_DRAW, epoch, positions, 1 - _ASPECT, _ASPECT - 1)
        ratio = np.where(change < 0, 1 / (1 - change), 1 + change)
        height = np.minimum(np.sqrt(area / ratio), 1) * self._height
        width = np.minimum(np.sqrt(area * ratio), 1) * self._width
        top = self._draw_between(_TOP_DRAW, epoch, positions, 0, 1) * (self._height - height)
        left = self._draw_between(_LEFT_DRAW, epoch, positions, 0, 1) * (self._width - width)
        boxes = np.stack([left, top, left + width, top + height], axis=1).astype(float)
        # Rounding must not move a box out of the image.
        limits = (self._width, self._height, self._width, self._height)
        resized = np.empty(images.shape, np.uint8)  # `images` may be a memory map

        def resize(index: int) -> None:
            picture = Image.fromarray(images[index].squeeze(axis=2) if one else images[index])
            box = tuple(np.clip(boxes[index], 0, limits).tolist())
            size = (self._width, self._height)
            result = picture.resize(size, Image.Resampling.BILINEAR, box=box)
            resized[index] = np.asarray(result).reshape(resized.shape[1:])

        one = self._channels == 1
        list(self._pool.map(resize, range(len(images))))
        return resized

    def _jitter(self, epoch: int, positions: npt.NDArray[np.int64], rows: Float32s) -> None:
        """Change brightness, contrast and saturation of normalised images; 0 is the mean colour."""
        strength = self._augmentation.jitter

        def draw(kind: int, centre: float) -> Float32s:
            found = self._draw_between(kind, epoch, positions, centre - strength, centre + strength)
            return found[:, None, None]

        if self._channels == 3:
            pixels = as_pixels(rows, self._channels)
            saturation = draw(_SATURATION_DRAW, 1.0)
            grey = pixels[..., 0] + pixels[..., 1]
            grey += pixels[..., 2]
            grey *= (1 - saturation) / 3
            pixels *= saturation[..., None]
            pixels += grey[..., None]
        rows *= draw(_CONTRAST_DRAW, 1.0)
        rows += draw(_BRIGHTNESS_DRAW, 0.0)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

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
