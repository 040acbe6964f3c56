"""The statistics, the folded form and the gradients of batch normalisation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class BatchStatistics(NamedTuple):
    """The mean and biased variance of each channel over a batch."""

    mean: Array
    var: Array


class RunningStatistics(NamedTuple):
    """Moving averages as in Chainer: of the mean and of the unbiased variance."""

    mean: Array
    var: Array
    decay: float


class FoldedNormalization(NamedTuple):
    """Batch normalisation folded into a scale and a shift for each channel.

    A convolution applies it to its input as it reads it, with a ReLU: max(x * scale + shift, 0).
    The normalised activation is then not kept for backward, and Winograd's algorithm never writes
    it to memory.
    """

    scale: Array
    shift: Array


class NormalizationGradients(NamedTuple):
    """Gradients of the inputs of a batch normalisation; `residual` is None without a residual."""

    x: Array
    gamma: Array
    beta: Array
    residual: Array | None
