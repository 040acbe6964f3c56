"""Normalisation and ReLU of a convolution's input, while it is read.

What is between them and the convolution is not kept for backward and, where Winograd's algorithm
computes, never exists in memory: neither is it written and read again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Prologue(NamedTuple):
    """max(x * scale + shift, 0), a scale and a shift for each channel."""

    scale: Array
    shift: Array
