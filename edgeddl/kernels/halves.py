"""Numbers in half precision as they travel: blocks, each with a power of two of its own.

The factor moves a block's largest number to just below 2**15: nothing overflows, and gradients far
below half precision's smallest number (6e-8) survive. A block with a number that is not finite, or
of 2**30 or more, arrives as NaN: training has diverged.
"""

from __future__ import annotations

import numpy as np

BLOCK = 1024  # numbers; csrc/half.h
# Half precision as uint16: a number is the half times factor * 2**-112.
HALF_BLOCK = np.dtype([("factor", np.float32), ("halves", np.uint16, BLOCK)], align=True)


def blocks_for(numbers: int) -> int:
    """How many blocks so many numbers take; what the last one has more than these is zero."""
    return -(-numbers // BLOCK)


def empty_blocks(numbers: int) -> np.ndarray:
    """Room for so many numbers."""
    return np.zeros(blocks_for(numbers), HALF_BLOCK)
