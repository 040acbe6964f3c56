"""Conversion between float32 and half precision for the wire (half_block.py)."""

from __future__ import annotations

from edgeddl.kernels.binding import NativeFunction
from edgeddl.kernels.checks import check_contiguous, check_dtype, check_shape, check_writable
from edgeddl.kernels.half_block import HALF_BLOCK, blocks_for
from edgeddl.kernels.layout import Array
from edgeddl.kernels.reference import half as reference
from edgeddl.kernels.selection import selected

_encode = NativeFunction("encode_half", "lpw")
_decode = NativeFunction("decode_half", "lpw")


def encode_half(numbers: Array, blocks: Array) -> None:
    """Round the numbers to 11 bits and write them to the blocks (HALF_BLOCK)."""
    _check(numbers, blocks)
    check_writable("blocks", blocks, numbers=numbers)
    if selected.library is None:
        reference.encode_half(numbers, blocks)
    else:
        _encode(numbers.size, numbers, blocks)


def decode_half(blocks: Array, numbers: Array) -> None:
    """Write the numbers of the blocks to `numbers`."""
    _check(numbers, blocks)
    check_writable("numbers", numbers, blocks=blocks)
    if selected.library is None:
        reference.decode_half(blocks, numbers)
    else:
        _decode(numbers.size, blocks, numbers)


def _check(numbers: Array, blocks: Array) -> None:
    check_contiguous((None,), numbers=numbers)
    check_dtype("blocks", blocks, (HALF_BLOCK,))
    check_shape("blocks", blocks.shape, (blocks_for(numbers.size),))
