"""Stochastic gradient descent with momentum over flat arrays, in C."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.deferral import finish
from edgeddl.kernels.layout import Array
from edgeddl.kernels.native.library import load

_momentum_sgd = load().function("momentum_sgd", "plwpwddi")


def momentum_sgd(
    parameters: Array,
    gradients: Array,
    velocity: Array,
    segments: Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """One step, in place. Every element goes the same way, wherever it is."""
    finish()  # they may read the parameters
    _momentum_sgd(
        np.ascontiguousarray(segments), len(segments), parameters, gradients, velocity,
        learning_rate, momentum, nesterov,
    )  # fmt: skip
