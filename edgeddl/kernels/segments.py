"""Segments of flat parameter arrays, each with its weight decay."""

from __future__ import annotations

import numpy as np

from edgeddl.errors import KernelError

# struct segment of csrc/edgeddl.h: elements start to end (excluded)
SEGMENT = np.dtype([("start", np.int64), ("end", np.int64), ("decay", np.float64)])


def check_segments(segments: np.ndarray, length: int) -> None:
    """Check that segments are in order, do not overlap and fit into arrays of this length."""
    if not isinstance(segments, np.ndarray) or segments.dtype != SEGMENT or segments.ndim != 1:
        raise KernelError(f"segments must be an array of {SEGMENT.names}, not {segments!r}")
    before = 0
    for start, end, _ in segments.tolist():  # they are few: faster than NumPy
        if not before <= start <= end <= length:
            raise KernelError(
                f"segments must be in order, disjoint and within 0..{length}, not"
                f" {segments.tolist()}"
            )
        before = end
