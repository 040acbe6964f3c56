"""MNIST and Fashion-MNIST from files in the IDX format."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeddl.data import load_dataset
from edgeddl.data.mnist import EDITIONS, MNIST, Edition, load_edition, parse_idx
from edgeddl.errors import DataError


def make_idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write_edition(folder: Path) -> tuple[Edition, list[np.ndarray]]:
    """An edition of few random images, with the checksums of its files."""
    draw = np.random.default_rng(0)
    arrays, archives = [], []
    for archive in MNIST.archives:
        shape = (7, 28, 28) if "images" in archive.name else (7,)
        arrays.append(draw.integers(0, 10, shape, np.uint8))
        content = gzip.compress(make_idx(arrays[-1]))
        (folder / archive.name).write_bytes(content)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        archives.append(replace(archive, size=len(content), md5=md5))
    return replace(MNIST, archives=tuple(archives)), arrays


def test_contents(tmp_path: Path) -> None:
    edition, arrays = write_edition(tmp_path)
    for part, images, labels in zip(
        load_edition(edition, tmp_path), arrays[::2], arrays[1::2], strict=True
    ):
        np.testing.assert_array_equal(part.images[..., 0], images)
        np.testing.assert_array_equal(part.labels, labels)
        assert part.image_shape == (1, 28, 28) and part.labels.dtype == np.int32


@pytest.mark.parametrize("number", range(4))
def test_altered_and_missing_files(tmp_path: Path, number: int) -> None:
    edition, _ = write_edition(tmp_path)
    path = tmp_path / edition.archives[number].name
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{path.name} does not match its published checksum"):
        load_edition(edition, tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"was not found(.|\n)*data fetch mnist"):
        load_edition(edition, tmp_path)


@pytest.mark.parametrize("name", EDITIONS)
def test_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"data fetch {name}"):
        load_dataset(name, data_dir=tmp_path)
    with pytest.raises(DataError, match="28 x 28"):
        load_dataset(name, data_dir=tmp_path, image_size=(32, 32))


@pytest.mark.parametrize(
    "damage", [b"", b"\0\0\x09\x01", b"\0\0\x08\x02\0\0\0\x01", b"\0\0\x08\x01\0\0\0\x02a"]
)
def test_not_idx(damage: bytes) -> None:
    with pytest.raises(ValueError, match=r"not an IDX|expected \d+ bytes"):
        parse_idx(damage)
