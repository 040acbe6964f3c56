"""Conversion between float32 and half precision for the wire, in C."""

from __future__ import annotations

from edgeddl.kernels.layout import Array
from edgeddl.kernels.native.library import load

_encode_half = load().function("encode_half", "lpw")
_decode_half = load().function("decode_half", "lpw")


def encode_half(numbers: Array, blocks: Array) -> None:
    """The blocks become these numbers."""
    _encode_half(numbers.size, numbers, blocks)


def decode_half(blocks: Array, numbers: Array) -> None:
    """The numbers become those of the blocks."""
    _decode_half(numbers.size, blocks, numbers)
