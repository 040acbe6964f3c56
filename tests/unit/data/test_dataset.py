"""Loading data sets by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgeddl.data
from edgeddl.data import ImageSet, cifar10, load_dataset
from edgeddl.data.dataset import compute_fingerprint
from edgeddl.errors import DataError
from tests.unit.data import cifar_files, pictures


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
        "usual_augmentation",
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
    assert "cifar10, cifar100, mnist, fashion-mnist, shapes" in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"limit_train": 0}, "--limit-train must be at least 1 for shapes, not 0"),
        ({"limit_train": -5}, "--limit-train must be at least 1 for shapes, not -5"),
        ({"limit_test": 0}, "--limit-test must be at least 1 for shapes, not 0"),
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


def test_shapes_of_any_size_and_number() -> None:
    large = load_dataset("shapes", limit_train=2, limit_test=10_020, image_size=(48, 64))
    assert large.image_shape == (3, 48, 64) and len(large.test) == 10_020
    small = load_dataset("shapes", limit_train=2, limit_test=2, image_size=(1, 1))
    assert small.image_shape == (3, 1, 1)


def test_a_larger_shape_shows_the_same_as_a_small_one() -> None:
    small, large = (
        load_dataset("shapes", limit_train=50, limit_test=1, image_size=(side, side)).train
        for side in (32, 96)
    )
    np.testing.assert_array_equal(small.labels, large.labels)
    reduced = large.images.reshape(50, 32, 3, 32, 3, 3).mean(axis=(2, 4))
    assert np.abs(reduced - small.images).mean() < 6  # noise of up to 10


def test_other_sizes_of_fixed_data_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar10 has images of 32 x 32 pixels, not 64 x 48"):
        load_dataset("cifar10", data_dir=tmp_path, image_size=(48, 64))


def test_folder_and_pack(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pictures.write_folder(tmp_path / "in", 10)
    options = {"image_size": (12, 16), "test_fraction": 0.3}
    dataset = load_dataset(f"folder:{tmp_path / 'in'}", data_dir=tmp_path / "cache", **options)  # type: ignore[arg-type]
    assert dataset.image_shape == (3, 12, 16) and dataset.classes == ("blue", "green", "red")
    (packed,) = (tmp_path / "cache" / "packs").iterdir()
    for name in (f"pack:{packed}", str(packed)):
        again = load_dataset(name)
        assert again.fingerprint == dataset.fingerprint and again.verified
        np.testing.assert_array_equal(again.train.images, dataset.train.images)
    limited = load_dataset(f"pack:{packed}", limit_train=5)
    assert len(limited.train) == 5 and limited.fingerprint != dataset.fingerprint
    assert isinstance(limited.train.images, np.memmap)
    with pytest.raises(DataError, match="has images of 16 x 12 pixels"):
        load_dataset(f"pack:{packed}", image_size=(16, 16))
    pictures.write_picture(tmp_path / "in" / "red" / "new.png")
    more = load_dataset(f"folder:{tmp_path / 'in'}", data_dir=tmp_path / "cache", **options)  # type: ignore[arg-type]
    assert len(more.train) + len(more.test) == 31
    assert list((tmp_path / "cache" / "packs").iterdir()) == [packed]


def test_no_pack(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a pack(.|\n)*hint: create one"):
        load_dataset(f"pack:{tmp_path}")


GREY = np.arange(5 * 6 * 7, dtype=np.uint8).reshape(5, 6, 7)


class Pairs:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((6, 7, 1), 10 * index, np.uint8), index % 2


def make_arrays() -> object:
    return (GREY, np.arange(5) % 2), Pairs(), ["cat", "dog"]


def make_pairs() -> object:
    return Pairs(), Pairs()


def make_floats() -> object:
    return (GREY / 255, np.arange(5) % 2), Pairs()


def make_unnamed() -> object:
    return (GREY, np.arange(5)), Pairs(), ["cat", "dog"]


def make_nothing() -> object:
    return None


def test_own_callable() -> None:
    dataset = load_dataset(f"{__name__}:make_arrays")
    assert dataset.classes == ("cat", "dog") and dataset.image_shape == (1, 6, 7)
    np.testing.assert_array_equal(dataset.train.images[..., 0], GREY)
    assert dataset.test.labels.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(dataset.mean, [GREY.mean() / 255], rtol=1e-6)
    assert load_dataset(f"{__name__}:make_pairs").classes == ("0", "1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("make_floats", "images are float64 of shape"),
        ("make_unnamed", "has a label 4, but 2 class names"),
        ("make_nothing", "returned NoneType"),
    ],
)
def test_wrong_callables(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(f"{__name__}:{name}")
    assert caught.value.hint
