"""Normalisation to mean 0 and standard deviation 1, with channels last in memory."""

from __future__ import annotations

import numpy as np

from edgeddl.data import ImageSet, normalise

MEAN = np.array([0.5, 0.4, 0.3], dtype=np.float32)
STD = np.array([0.25, 0.2, 0.1], dtype=np.float32)


def random_images(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def test_normalise() -> None:
    images = random_images(7)
    x = normalise(images, MEAN, STD)
    expected = (images.astype(np.float64) / 255 - MEAN) / STD
    assert x.shape == (7, 3, 32, 32) and x.dtype == np.float32
    # Two roundings of numbers up to 7 in float32.
    np.testing.assert_allclose(x, expected.transpose(0, 3, 1, 2), atol=2e-6)


def test_channels_are_last_in_memory() -> None:
    x = normalise(random_images(2), MEAN, STD)
    assert x.transpose(0, 2, 3, 1).flags.c_contiguous


def test_a_part_is_normalised_like_the_whole() -> None:
    images = random_images(9)
    whole = normalise(images, MEAN, STD)
    np.testing.assert_array_equal(normalise(images[3:5], MEAN, STD), whole[3:5])


def test_no_images() -> None:
    assert normalise(random_images(0), MEAN, STD).shape == (0, 3, 32, 32)


def test_the_first_images() -> None:
    whole = ImageSet(random_images(5), np.arange(5, dtype=np.int32))
    part = whole.first(2)
    assert len(part) == 2
    np.testing.assert_array_equal(part.images, whole.images[:2])
    assert part.labels.tolist() == [0, 1]
    assert not np.shares_memory(part.images, whole.images)
    assert whole.first(5) is whole
