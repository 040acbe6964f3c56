"""Decoding of pictures: formats, colours, orientation, damage."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgeddl.data.picture import decode, read_size
from edgeddl.errors import DataError
from tests.unit.data.pictures import write_bomb, write_picture


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "png", "webp", "bmp"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    path = write_picture(tmp_path / f"ein Bild Ωß.{suffix}", (200, 100, 50))
    pixels = decode(path, (16, 24), "crop", 3)
    assert pixels.shape == (16, 24, 3) and pixels.dtype == np.uint8 and pixels.flags.writeable
    np.testing.assert_allclose(pixels.mean(axis=(0, 1)), (200, 100, 50), atol=8)


def test_own_size_and_sources(tmp_path: Path) -> None:
    path = write_picture(tmp_path / "a.png", size=(40, 30))
    expected = np.asarray(Image.open(path))
    np.testing.assert_array_equal(decode(path, None, "crop", 3), expected)
    np.testing.assert_array_equal(decode(path.read_bytes(), None, "crop", 3), expected)
    np.testing.assert_array_equal(decode(io.BytesIO(path.read_bytes()), None, "pad", 3), expected)
    assert read_size(path) == (30, 40)


def test_crop_removes_edges_and_pad_adds_borders(tmp_path: Path) -> None:
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, 10:30] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", (20, 20), "crop", 3).min() == 255
    padded = decode(tmp_path / "a.png", (40, 40), "pad", 3)
    assert padded[:10].max() == 0 and padded[30:].max() == 0 and padded[20, 20].min() == 255


def test_exif_orientation(tmp_path: Path) -> None:
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise: the left half becomes the upper one
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif, quality=95)
    upright = decode(tmp_path / "a.jpg", None, "crop", 3)
    assert upright.shape == (40, 20, 3)
    assert upright[:18].min() > 200 and upright[22:].max() < 55


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_greyscale(tmp_path: Path, channels: int) -> None:
    Image.fromarray(np.full((9, 9), 77, np.uint8)).save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png", (8, 8), "crop", channels)
    assert pixels.shape == (8, 8, channels)
    assert (pixels[..., :3] == 77).all() and (pixels[..., 3:] == 255).all()


def test_transparent_areas_become_white_or_stay_transparent(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[:4] = (255, 0, 0, 255)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    colours = decode(tmp_path / "a.png", None, "crop", 3)
    assert (colours[:4] == (255, 0, 0)).all() and (colours[4:] == 255).all()
    np.testing.assert_array_equal(decode(tmp_path / "a.png", None, "crop", 4), pixels)


def test_16_bits(tmp_path: Path) -> None:
    values = np.array([[0, 0x1234], [0x8000, 0xFFFF]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png", None, "crop", 1)
    np.testing.assert_array_equal(pixels[..., 0], [[0, 0x12], [0x80, 0xFF]])


def test_cmyk(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=95)
    pixels = decode(tmp_path / "a.jpg", None, "crop", 3)
    np.testing.assert_allclose(pixels[8, 8], (255, 0, 0), atol=6)


def test_text_in_a_picture_file(tmp_path: Path) -> None:
    (tmp_path / "notes.jpg").write_text("not a picture")
    with pytest.raises(DataError, match=r"notes\.jpg is not a JPEG, PNG(.|\n)*hint: replace"):
        decode(tmp_path / "notes.jpg", None, "crop", 3)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp"])
def test_truncated(tmp_path: Path, suffix: str) -> None:
    path = write_picture(tmp_path / f"a.{suffix}", size=(200, 200))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=rf"a\.{suffix} is (damaged|not a)"):
        decode(path, (32, 32), "crop", 3)


def test_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.png cannot be read: No such file"):
        decode(tmp_path / "a.png", None, "crop", 3)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        decode(tmp_path, None, "crop", 3)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [10_000, 20_000])
def test_decompression_bomb(tmp_path: Path, side: int) -> None:
    path = write_bomb(tmp_path / "bomb.png", side)
    message = r"bomb\.png has .* pixels, more than the limit(.|\n)*hint: reduce"
    with pytest.raises(DataError, match=message):
        decode(path, (32, 32), "crop", 3)
    with pytest.raises(DataError, match=message):
        read_size(path)
