"""Segments of flat arrays of parameters: where they are, and their weight decay."""

from __future__ import annotations

import numpy as np

from edgeddl.errors import KernelError

# struct segment of csrc/optimizer.c: elements start to end (excluded)
SEGMENT = np.dtype([("start", np.int64), ("end", np.int64), ("decay", np.float64)])


def check_segments(segments: np.ndarray, length: int) -> None:
    """Segments in order, apart from each other, of arrays of this length."""
    if not isinstance(segments, np.ndarray) or segments.dtype != SEGMENT or segments.ndim != 1:
        raise KernelError(f"segments must be an array of {SEGMENT.names}, not {segments!r}")
    before = 0
    for start, end, _ in segments.tolist():  # there are few: faster than by NumPy
        if not before <= start <= end <= length:
            raise KernelError(
                f"segments must be in order, apart and within 0..{length}, not {segments.tolist()}"
            )
        before = end
