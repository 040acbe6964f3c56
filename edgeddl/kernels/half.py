"""Entry points of half precision on the wire."""

from __future__ import annotations

from edgeddl.kernels.checks import check_contiguous, check_kind, check_shape, check_writable
from edgeddl.kernels.halves import HALF_BLOCK, blocks_for
from edgeddl.kernels.layout import Array
from edgeddl.kernels.selection import selected


def encode_half(numbers: Array, blocks: Array) -> None:
    """The blocks (HALF_BLOCK) become these numbers, rounded to 11 bits; see halves.py."""
    _check_half(numbers, blocks)
    check_writable("blocks", blocks, numbers=numbers)
    selected.implementation.encode_half(numbers, blocks)


def decode_half(blocks: Array, numbers: Array) -> None:
    """The numbers become those of the blocks."""
    _check_half(numbers, blocks)
    check_writable("numbers", numbers, blocks=blocks)
    selected.implementation.decode_half(blocks, numbers)


def _check_half(numbers: Array, blocks: Array) -> None:
    check_contiguous((None,), numbers=numbers)
    check_kind("blocks", blocks, (HALF_BLOCK,))
    check_shape("blocks", blocks.shape, (blocks_for(numbers.size),))
