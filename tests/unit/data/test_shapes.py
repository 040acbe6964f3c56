"""The generated data set is reproducible, balanced, and not linearly separable."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from edgeddl.data import ImageSet, normalise, shapes
from edgeddl.data.outlines import OUTLINES

MEAN = np.array(shapes.MEAN, dtype=np.float32)
STD = np.array(shapes.STD, dtype=np.float32)


@pytest.fixture(scope="module")
def train() -> ImageSet:
    return shapes.generate("train", 5000)


@pytest.fixture(scope="module")
def test_images() -> ImageSet:
    return shapes.generate("test", 1000)


def test_form(train: ImageSet) -> None:
    assert train.images.shape == (5000, 32, 32, 3)
    assert train.images.dtype == np.uint8 and train.images.flags.c_contiguous
    assert train.labels.shape == (5000,) and train.labels.dtype == np.int32
    assert len(shapes.CLASSES) == 10


@pytest.mark.parametrize(
    ("split", "expected"), [("train", "bc61425bfc953bbd"), ("test", "f9322892ca2ff007")]
)
def test_the_same_bytes_everywhere(split: shapes.Split, expected: str) -> None:
    """On every machine, and with every release of Python and NumPy."""
    part = shapes.generate(split, 300)
    digest = hashlib.sha256(part.images.tobytes() + part.labels.astype("<i4").tobytes())
    assert digest.hexdigest()[:16] == expected


@pytest.mark.parametrize("count", [1, 9, 100, 123])
def test_an_image_does_not_depend_on_how_many_there_are(train: ImageSet, count: int) -> None:
    part = shapes.generate("train", count)
    np.testing.assert_array_equal(part.images, train.images[:count])
    np.testing.assert_array_equal(part.labels, train.labels[:count])


def test_every_ten_images_show_every_class(train: ImageSet) -> None:
    blocks = train.labels.reshape(-1, 10)
    np.testing.assert_array_equal(np.sort(blocks, axis=1), np.tile(np.arange(10), (500, 1)))
    assert len(np.unique(blocks, axis=0)) > 490


def test_no_image_occurs_twice(train: ImageSet, test_images: ImageSet) -> None:
    images = np.concatenate([train.images, test_images.images])
    assert len({image.tobytes() for image in images}) == len(images)


def test_mean_and_deviation(train: ImageSet) -> None:
    pixels = train.images.reshape(-1, 3) / 255
    np.testing.assert_allclose(pixels.mean(axis=0), shapes.MEAN, atol=0.01)
    np.testing.assert_allclose(pixels.std(axis=0), shapes.STD, atol=0.01)


def test_shapes_are_as_often_lighter_as_darker(train: ImageSet) -> None:
    """A disc covers the centre and leaves the corners free."""
    discs = train.images[train.labels == shapes.CLASSES.index("disc")].astype(float)
    lighter = discs[:, 15:17, 15:17].mean(axis=(1, 2, 3)) > discs[:, ::31, ::31].mean(
        axis=(1, 2, 3)
    )
    assert 0.4 < lighter.mean() < 0.6


def fit_linear_model(images: ImageSet, penalty: float) -> np.ndarray:
    """Ridge regression of the classes on the pixels."""
    x = flatten(images)
    targets = np.eye(10, dtype=np.float32)[images.labels] - np.float32(0.1)
    return np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1], dtype=np.float32), x.T @ targets)


def flatten(images: ImageSet) -> np.ndarray:
    x = normalise(images.images, MEAN, STD).reshape(len(images), -1)
    return np.concatenate([x, np.ones((len(x), 1), dtype=np.float32)], axis=1)


def test_a_linear_model_fails(train: ImageSet, test_images: ImageSet) -> None:
    weights = fit_linear_model(train, penalty=1e4)  # the best of 1e2, 1e3, ... 1e6
    accuracy = (np.argmax(flatten(test_images) @ weights, axis=1) == test_images.labels).mean()
    assert accuracy < 0.35


def test_outlines_differ_where_sizes_are_alike() -> None:
    """No two shapes cover nearly the same points, in any of the four main directions."""
    v, u = np.mgrid[-1.2:1.2:49j, -1.2:1.2:49j].astype(np.float32)
    inside = {name: outline(u, v) < 0 for name, outline in OUTLINES.items()}
    for name, points in inside.items():
        assert 0.1 < points.mean() < 0.6, name
        for other, others in inside.items():
            if other != name:
                overlaps = [
                    (points & np.rot90(others, k)).sum() / (points | np.rot90(others, k)).sum()
                    for k in range(4)
                ]
                assert max(overlaps) < 0.9, (name, other)


@pytest.mark.parametrize("name", OUTLINES)
def test_outlines_are_left_right_symmetric_in_some_direction(name: str) -> None:
    """Flipping an image must not turn a shape into something else."""
    v, u = np.mgrid[-1.2:1.2:49j, -1.2:1.2:49j].astype(np.float32)
    inside = OUTLINES[name](u, v) < 0
    assert np.array_equal(inside, inside[:, ::-1]) or np.array_equal(inside, inside[::-1])
