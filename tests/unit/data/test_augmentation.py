"""Crop, flip and cutout equal their plain definition, image by image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeddl.data import NO_AUGMENTATION, Augmentation, normalise
from edgeddl.data.augmentation import Augmenter
from edgeddl.data.images import Normaliser, as_pixels

MEAN = np.array([0.5, 0.4, 0.3], dtype=np.float32)
STD = np.array([0.25, 0.2, 0.1], dtype=np.float32)
COUNT = 200
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 32, 32, 3), dtype=np.uint8)
PLAIN = normalise(IMAGES, MEAN, STD)
SHAPE = (3, 32, 32)


def augment(
    augmentation: Augmentation,
    *,
    seed: int = 0,
    epoch: int = 0,
    part: slice = slice(COUNT),
    first_position: int = 0,
) -> np.ndarray:
    augmenter = Augmenter(augmentation, Normaliser(MEAN, STD, SHAPE), seed=seed, capacity=COUNT)
    images = IMAGES[part]
    rows = np.full((len(images), 32, 96), np.nan, dtype=np.float32)
    start = first_position + (part.start or 0)
    augmenter.write(images, epoch, np.arange(start, start + len(images)), rows)
    return as_pixels(rows, 3).transpose(0, 3, 1, 2)


def crops_of(image: np.ndarray, margin: int) -> dict[tuple[int, int], np.ndarray]:
    """Every crop of one image (3, 32, 32), by where it starts in the padded image."""
    padded = np.pad(image, ((0, 0), (margin, margin), (margin, margin)))
    places = range(2 * margin + 1)
    return {
        (top, left): padded[:, top : top + 32, left : left + 32]
        for top in places
        for left in places
    }


def test_nothing() -> None:
    np.testing.assert_array_equal(augment(NO_AUGMENTATION), PLAIN)


@pytest.mark.parametrize("margin", [1, 2, 4])
def test_crop(margin: int) -> None:
    """Every result is a crop of the image with zeros around it; every place occurs."""
    results = augment(Augmentation(crop_padding=margin, flip=False))
    found = []
    for image, result in zip(PLAIN, results, strict=True):
        places = [p for p, crop in crops_of(image, margin).items() if np.array_equal(crop, result)]
        assert len(places) == 1
        found.extend(places)
    assert {top for top, _ in found} == {left for _, left in found} == set(range(2 * margin + 1))
    assert len(set(found)) > (2 * margin + 1) ** 2 / 2


def test_padding_is_the_mean_colour() -> None:
    result = augment(Augmentation(crop_padding=4, flip=False))
    assert (result == 0).all(axis=1).any()
    assert not (PLAIN == 0).all(axis=1).any()


def test_flip() -> None:
    results = augment(Augmentation(crop_padding=0, flip=True))
    flipped = [np.array_equal(r, x[:, :, ::-1]) for r, x in zip(results, PLAIN, strict=True)]
    same = [np.array_equal(r, x) for r, x in zip(results, PLAIN, strict=True)]
    assert np.logical_xor(flipped, same).all()
    assert 70 < sum(flipped) < 130  # of 200: four standard deviations


@pytest.mark.parametrize("side", [1, 8, 15, 16])
def test_cutout(side: int) -> None:
    """A square of zeros whose centre is in the image, cut at its edges; the rest is untouched."""
    results = augment(Augmentation(crop_padding=0, flip=False, cutout=side))
    heights = set()
    for image, result in zip(PLAIN, results, strict=True):
        gone = (result != image).any(axis=0)
        rows, columns = np.flatnonzero(gone.any(axis=1)), np.flatnonzero(gone.any(axis=0))
        hole = np.zeros((32, 32), dtype=bool)
        hole[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = True
        np.testing.assert_array_equal(gone, hole)
        assert (result[:, hole] == 0).all()
        assert side // 2 <= len(rows) <= side and side // 2 <= len(columns) <= side
        heights.add(len(rows))
    assert max(heights) == side


def test_all_together() -> None:
    """Crop, then flip, then cutout."""
    moved = augment(Augmentation())
    results = augment(Augmentation(cutout=16))
    kept = results != 0
    np.testing.assert_array_equal(results[kept], moved[kept])
    assert (~kept).all(axis=1).sum(axis=(1, 2)).min() >= 64  # a hole in every image


AUGMENTATION = Augmentation(cutout=8)


def test_depends_on_position_not_on_batch() -> None:
    whole = augment(AUGMENTATION)
    for part in (slice(0, 1), slice(7, 39), slice(199, 200)):
        np.testing.assert_array_equal(augment(AUGMENTATION, part=part), whole[part])


@pytest.mark.parametrize("change", [{"seed": 1}, {"epoch": 1}, {"first_position": 1}])
def test_depends_on_seed_epoch_and_position(change: dict[str, Any]) -> None:
    same = (augment(AUGMENTATION, **change) == augment(AUGMENTATION)).all(axis=(1, 2, 3))
    assert same.mean() < 0.05


def test_rows_of_an_earlier_batch_leave_no_trace() -> None:
    augmenter = Augmenter(AUGMENTATION, Normaliser(MEAN, STD, SHAPE), seed=0, capacity=32)
    rows = np.empty((32, 32, 96), dtype=np.float32)
    augmenter.write(IMAGES[:32], 0, np.arange(32), rows)
    augmenter.write(IMAGES[32:40], 0, np.arange(32, 40), rows[:8])
    found = as_pixels(rows[:8], 3).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(found, augment(AUGMENTATION)[32:40])
