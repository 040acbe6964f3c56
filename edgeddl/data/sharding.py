"""Which rank trains on which images: pure functions, the same answer on every rank."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgeddl.data.randomness import derive_key, draw_bits

_STREAM = 1  # keeps the order of the images apart from the draws of the augmentation


def epoch_permutation(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """The order in which an epoch visits `count` images."""
    keys = draw_bits(derive_key(seed, _STREAM, epoch), np.arange(count))
    return np.argsort(keys, kind="stable").astype(np.int64)


def split_evenly(count: int, parts: int, index: int) -> tuple[int, int]:
    """Start and stop of part `index` of `count` items; the first `count % parts` have one more."""
    share, remainder = divmod(count, parts)
    start = index * share + min(index, remainder)
    return start, start + share + (index < remainder)
