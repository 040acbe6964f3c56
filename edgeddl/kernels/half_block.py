"""The storage format of half precision on the wire: blocks with a common power of two as factor.

The factor scales a block's largest number to just below 2**15. So nothing overflows, and gradients
far below half precision's smallest number (6e-8) survive. A block with a number that is not finite,
or of 2**30 or more, arrives as NaN: training has diverged.
"""

from __future__ import annotations

import numpy as np

BLOCK = 1024  # numbers; csrc/edgeddl.h
# Half precision as uint16: a number is the half times factor * 2**-112.
HALF_BLOCK = np.dtype([("factor", np.float32), ("halves", np.uint16, BLOCK)], align=True)


def blocks_for(numbers: int) -> int:
    """The number of blocks that hold this many numbers; the rest of the last block is zero."""
    return -(-numbers // BLOCK)


def empty_blocks(numbers: int) -> np.ndarray:
    """Blocks for this many numbers."""
    return np.zeros(blocks_for(numbers), HALF_BLOCK)
