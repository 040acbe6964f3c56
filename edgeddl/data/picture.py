"""Decodes picture files with Pillow: JPEG, PNG, WebP and BMP."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from edgeddl.config import Fit
from edgeddl.data.images import UInt8s
from edgeddl.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
# A file of some kilobytes can describe a picture that needs gigabytes (a decompression bomb).
# Decoding this many pixels needs about 400 MB. Pillow warns slightly above it.
LARGEST_PIXELS = 89_000_000

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_HINT_BROKEN = "replace or delete the file"


def decode(
    source: Path | bytes | BinaryIO, size: tuple[int, int] | None, fit: Fit, channels: int
) -> UInt8s:
    """A picture as (height, width, channels), upright by its EXIF orientation.

    size: height and width of the result; None keeps the picture's own.
    fit: how a picture of another aspect ratio becomes `size`: "crop" removes its edges, "pad" adds
        black borders.
    channels: 1 (grey), 3 (RGB; transparent areas become white) or 4 (RGBA).
    """
    name = _name(source)
    try:
        with _open(source) as image:
            return _convert(image, size, fit, channels)
    except DataError:
        raise
    # Pillow's decoders raise errors of many types for damaged files.
    except Exception as error:
        raise _explain(name, error) from error


def read_size(path: Path) -> tuple[int, int]:
    """Height and width of a picture, from its header only."""
    try:
        with _open(path) as image:
            return image.height, image.width
    except DataError:
        raise
    except Exception as error:
        raise _explain(str(path), error) from error


def _name(source: Path | bytes | BinaryIO) -> str:
    if isinstance(source, bytes):
        return "the picture"
    return str(source if isinstance(source, Path) else getattr(source, "name", "the picture"))


def _open(source: Path | bytes | BinaryIO) -> Image.Image:
    stream: Any = io.BytesIO(source) if isinstance(source, bytes) else source
    image = Image.open(stream, formats=FORMATS)
    if image.width * image.height > LARGEST_PIXELS:
        with image:
            raise _too_large(_name(source), f"{image.width:,} x {image.height:,}")
    return image


def _too_large(name: str, found: str) -> DataError:
    return DataError(
        f"{name} has {found} pixels, more than the limit of {LARGEST_PIXELS:,}",
        hint="reduce the picture, or delete it",
    )


def _explain(name: str, error: Exception) -> DataError:
    if isinstance(error, Image.DecompressionBombError):
        return _too_large(name, "too many")
    if isinstance(error, UnidentifiedImageError):
        return DataError(f"{name} is not a JPEG, PNG, WebP or BMP picture", hint=_HINT_BROKEN)
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return DataError(
            f"{name} cannot be read: {error.strerror}", hint="check the path and its permissions"
        )
    return DataError(f"{name} is damaged: {error}", hint=_HINT_BROKEN)


def _convert(image: Image.Image, size: tuple[int, int] | None, fit: Fit, channels: int) -> UInt8s:
    if size is not None:
        # A JPEG decoder can skip detail: at most twice the needed size is decoded. EXIF may swap
        # the sides, so both have to be large enough for the longer one.
        image.draft(None, (max(size), max(size)))
    image = ImageOps.exif_transpose(image)
    image = _to_channels(_to_8_bits(image), channels)
    if size is not None:
        height, width = size
        resize = ImageOps.fit if fit == "crop" else ImageOps.pad
        image = resize(image, (width, height), Image.Resampling.BICUBIC)
    pixels: UInt8s = np.array(image, dtype=np.uint8)
    return pixels.reshape(image.height, image.width, channels)


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Pillow clips 16-bit greyscale at 255 when it converts; this keeps the upper 8 bits."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray(np.clip(values >> 8, 0, 255).astype(np.uint8))
    return image


def _to_channels(image: Image.Image, channels: int) -> Image.Image:
    if channels != 4 and image.has_transparency_data:
        picture = image.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        image = Image.alpha_composite(white, picture).convert("RGB")
    return image.convert(_MODES[channels])
