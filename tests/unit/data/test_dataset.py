"""Loading data sets by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgeddl.data
from edgeddl.data import ImageSet, cifar10, load_dataset
from edgeddl.data.dataset import compute_fingerprint
from edgeddl.errors import DataError
from tests.unit.data import cifar_files


def test_exports() -> None:
    assert sorted(edgeddl.data.__all__) == [
        "Augmentation",
        "Dataset",
        "ImageSet",
        "NO_AUGMENTATION",
        "StepBatch",
        "TrainLoader",
        "default_data_dir",
        "epoch_permutation",
        "fetch_cifar10",
        "load_dataset",
        "normalise",
        "split_evenly",
    ]
    assert all(hasattr(edgeddl.data, name) for name in edgeddl.data.__all__)


def test_shapes() -> None:
    dataset = load_dataset("shapes", limit_train=30, limit_test=20)
    assert dataset.name == "shapes"
    assert (len(dataset.train), len(dataset.test)) == (30, 20)
    assert len(dataset.classes) == 10
    assert dataset.mean.dtype == dataset.std.dtype == np.float32
    assert dataset.mean.shape == dataset.std.shape == (3,)
    assert dataset.image_shape == (3, 32, 32)


@pytest.fixture
def small_cifar10(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 20 images."""
    load = cifar10.load_cifar10
    monkeypatch.setattr(cifar10, "load_cifar10", lambda places: load(places, cifar_files.LAYOUT))


@pytest.mark.usefixtures("small_cifar10")
def test_cifar10_with_limits(tmp_path: Path) -> None:
    cifar_files.write_binary(tmp_path)
    images, labels = cifar_files.expected_images()
    dataset = load_dataset("cifar10", data_dir=tmp_path, limit_train=33, limit_test=7)
    np.testing.assert_array_equal(dataset.train.images, images[:33])
    np.testing.assert_array_equal(dataset.train.labels, labels[:33])
    np.testing.assert_array_equal(dataset.test.images, images[100:107])
    assert dataset.classes[3] == "cat"


@pytest.mark.usefixtures("small_cifar10")
def test_cifar10_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cifar_files.write_python(tmp_path / "edgeddl")
    assert len(load_dataset("cifar10", limit_train=100, limit_test=20).train) == 100


def test_given_folder_is_the_only_one_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cifar_files.write_binary(tmp_path / "edgeddl")
    with pytest.raises(DataError, match=r"was not found in .*elsewhere"):
        load_dataset("cifar10", data_dir=tmp_path / "elsewhere")


def test_unknown_name() -> None:
    with pytest.raises(DataError, match="unknown data set 'imagenet'") as caught:
        load_dataset("imagenet")
    assert "cifar10, shapes" in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"limit_train": 0}, "--limit-train must be from 1 to 10,000 for shapes, not 0"),
        ({"limit_train": -5}, "--limit-train must be from 1 to 10,000 for shapes, not -5"),
        ({"limit_train": 10_001}, "--limit-train must be from 1 to 10,000 for shapes, not 10,001"),
        ({"limit_test": 0}, "--limit-test must be from 1 to 2,000 for shapes, not 0"),
        ({"limit_test": 2001}, "--limit-test must be from 1 to 2,000 for shapes, not 2,001"),
    ],
)
def test_wrong_limits(limits: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset("shapes", **limits)  # type: ignore[arg-type]


def test_fingerprint_is_repeatable_and_short() -> None:
    first = load_dataset("shapes", limit_train=20, limit_test=10).fingerprint
    assert load_dataset("shapes", limit_train=20, limit_test=10).fingerprint == first
    assert len(first) == 16


@pytest.mark.parametrize("limits", [(21, 10), (20, 11), (10, 20)])
def test_fingerprint_tells_limits_apart(limits: tuple[int, int]) -> None:
    base = load_dataset("shapes", limit_train=20, limit_test=10).fingerprint
    other = load_dataset("shapes", limit_train=limits[0], limit_test=limits[1]).fingerprint
    assert other != base


def test_fingerprint_tells_any_change_apart() -> None:
    images = np.zeros((3, 32, 32, 3), dtype=np.uint8)
    labels = np.zeros(3, dtype=np.int32)
    pixel, label = images.copy(), labels.copy()
    pixel[2, 31, 31, 2] = 1
    label[2] = 1
    sets = [ImageSet(images, labels), ImageSet(pixel, labels), ImageSet(images, label)]
    fingerprints = {compute_fingerprint(a, b) for a in sets for b in sets}
    assert len(fingerprints) == 9
