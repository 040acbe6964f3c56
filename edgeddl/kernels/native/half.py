"""Conversion between float32 and half precision for the wire, in C."""

from __future__ import annotations

from edgeddl.kernels.layout import Array
from edgeddl.kernels.native.library import load

_encode_half = load().function("encode_half", "lpfw")
_decode_half = load().function("decode_half", "lpfw")


def encode_half(x: Array, factor: float, out: Array) -> None:
    """out = x / (factor * 2**-112) in half precision, as uint16; must be within its range."""
    _encode_half(x.size, x, 1 / factor, out)


def decode_half(x: Array, factor: float, out: Array) -> None:
    """out = what encode_half was given, rounded to 11 bits; the same factor."""
    _decode_half(x.size, x, factor, out)
