"""What batch normalisation knows of channels, and what its backward pass gives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Moments(NamedTuple):
    """The mean and biased variance of each channel over a batch."""

    mean: Array
    var: Array


class Running(NamedTuple):
    """Moving averages as Chainer keeps them: of the mean, and of the unbiased variance."""

    mean: Array
    var: Array
    decay: float


class NormalizationGradients(NamedTuple):
    """Gradients of what went into a batch normalisation; of a residual, if there was one."""

    x: Array
    gamma: Array
    beta: Array
    residual: Array | None
