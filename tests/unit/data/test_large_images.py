"""Augmentation of large images: resized crops and colour jitter, reproducible."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl.data import Augmentation, ImageSet, TrainLoader, usual_augmentation
from edgeddl.data.augmentation import LARGE_IMAGES, Augmenter
from edgeddl.data.images import Normaliser

COUNT = 40


def make_images(channels: int = 3) -> np.ndarray:
    """Gradients: the first channel grows to the right, the last downwards."""
    y, x = np.mgrid[0:72, 0:96]
    image = np.stack([2 * x, x + y, 3 * y, y][:channels], axis=2)
    return np.tile(image.astype(np.uint8), (COUNT, 1, 1, 1))


def augment(
    augmentation: Augmentation, images: np.ndarray, positions: np.ndarray, threads: int = 1
) -> np.ndarray:
    count, height, width, channels = images.shape
    ones = np.ones(channels, np.float32)
    normaliser = Normaliser(0 * ones, ones / 255, (channels, height, width))
    augmenter = Augmenter(augmentation, normaliser, seed=3, capacity=count, threads=threads)
    rows = np.empty((count, height, width * channels), np.float32)
    augmenter.write(images, 5, positions, rows)
    augmenter.close()
    return rows.reshape(images.shape)


def test_usual_augmentation() -> None:
    assert usual_augmentation((3, 32, 32)) == Augmentation()
    assert usual_augmentation((1, 28, 28)) == Augmentation()
    assert usual_augmentation((3, 224, 224)) == LARGE_IMAGES


def test_crops_cover_the_stated_part_of_the_image() -> None:
    """In a gradient, the range of values of a crop shows its size and place."""
    crop = Augmentation(crop_padding=0, flip=False, smallest_area=0.25)
    images = make_images()
    pixels = augment(crop, images, np.arange(COUNT))
    width = np.ptp(pixels[..., 0], axis=(1, 2)) / (2 * 95)
    height = np.ptp(pixels[..., 2], axis=(1, 2)) / (3 * 71)
    area = width * height
    assert 0.2 < area.min() < 0.4 and 0.75 < area.max() <= 1
    ratio = width / height
    assert ratio.min() > 0.7 and ratio.max() < 1.4
    assert len(np.unique(pixels[:, 0, 0, 0])) > COUNT // 2
    assert (np.diff(pixels[..., 0], axis=2) >= 0).all()


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("augmentation", [LARGE_IMAGES, Augmentation(cutout=8)])
def test_an_image_depends_only_on_its_position(augmentation: Augmentation, channels: int) -> None:
    images = make_images(channels)
    positions = np.arange(100, 100 + COUNT)
    whole = augment(augmentation, images, positions, threads=3)
    parts = [
        augment(augmentation, images[part], positions[part])
        for part in (slice(0, 7), slice(7, COUNT))
    ]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert not np.array_equal(whole[0], whole[1])


def test_jitter_changes_brightness_contrast_and_saturation_within_limits() -> None:
    jitter = Augmentation(crop_padding=0, flip=False, jitter=0.2)
    images = make_images()
    plain = images.astype(np.float32)
    changed = augment(jitter, images, np.arange(COUNT))
    grey, changed_grey = plain.mean(axis=3), changed.mean(axis=3)
    contrast = np.ptp(changed_grey, axis=(1, 2)) / np.ptp(grey, axis=(1, 2))
    brightness = (changed_grey - contrast[:, None, None] * grey).mean(axis=(1, 2))
    colour, changed_colour = plain - grey[..., None], changed - changed_grey[..., None]
    saturation = np.ptp(changed_colour, axis=(1, 2, 3)) / np.ptp(colour, axis=(1, 2, 3)) / contrast
    for values, centre in ((contrast, 1), (saturation, 1), (brightness, 0)):
        assert (np.abs(values - centre) < 0.2 + 1e-3).all()
        assert np.ptp(values) > 0.2


def test_resumed_epochs_are_identical_and_visit_every_image_once() -> None:
    images = ImageSet(make_images(), np.arange(COUNT, dtype=np.int32))
    ones = np.ones(3, np.float32)

    def collect(first_image: int, threads: int) -> list[tuple[np.ndarray, np.ndarray]]:
        with TrainLoader(
            images,
            ones,
            ones,
            shares=[8],
            batch_size=8,
            seed=1,
            augmentation=LARGE_IMAGES,
            threads=threads,
        ) as loader:
            steps = loader.steps(2, first_image)
            return [(x.copy(), t.copy()) for step in steps for x, t in step.micro_batches]

    whole, resumed = collect(0, 3), collect(16, 1)
    assert sorted(np.concatenate([t for _, t in whole])) == list(range(COUNT))
    for (x, t), (again, labels) in zip(whole[2:], resumed, strict=True):
        np.testing.assert_array_equal(x, again)
        np.testing.assert_array_equal(t, labels)
