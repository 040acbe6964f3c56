"""Picture files for the tests."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (220, 30, 20), "green": (20, 200, 40), "blue": (10, 40, 210)}


def write_picture(
    path: Path, colour: tuple[int, ...] = (200, 100, 50), size: tuple[int, int] = (40, 30)
) -> Path:
    """A picture of `size` (width, height) with noise that depends on its name."""
    draw = np.random.default_rng(zlib.crc32(path.name.encode()))
    noise = draw.integers(-20, 20, (size[1], size[0], len(colour)))
    pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def write_folder(folder: Path, per_class: int = 20, size: tuple[int, int] = (40, 30)) -> Path:
    """One folder per class, red, green and blue."""
    for name, colour in COLOURS.items():
        for number in range(per_class):
            write_picture(folder / name / f"{name} {number}.png", colour, size)
    return folder


def write_bomb(path: Path, side: int = 20_000) -> Path:
    """A PNG of a few hundred bytes whose header announces side x side pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path
