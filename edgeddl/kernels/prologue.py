"""Normalisation and ReLU of a convolution's input, while it is read.

What is between them and the convolution then never exists in memory: neither is it written and
read again, nor kept for backward.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Prologue(NamedTuple):
    """max(x * scale + shift, 0), a scale and a shift for each channel."""

    scale: Array
    shift: Array


def scale_and_shift(gamma: Array, beta: Array, mean: Array, var: Array, eps: float) -> Prologue:
    """The batch normalisation as x * scale + shift, by the same operations as in the C code.

    The shift is for the scale as rounded: so at x = mean, y is beta but for the last two roundings,
    however large the mean.
    """
    scale = (gamma / np.sqrt(var.astype(np.float64) + eps)).astype(np.float32)
    shift = beta - mean.astype(np.float64) * scale
    return Prologue(scale, shift.astype(np.float32))
