"""Stochastic gradient descent with momentum over flat arrays, in C."""

from __future__ import annotations

from edgeddl.kernels.layout import Array
from edgeddl.kernels.native.library import load

_momentum_sgd = load().function("momentum_sgd", "lpppdddi")


def momentum_sgd(
    parameters: Array,
    gradients: Array,
    velocity: Array,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    """One step, in place. Every element goes the same way, wherever it is."""
    _momentum_sgd(
        parameters.size, parameters, gradients, velocity,
        learning_rate, momentum, weight_decay, nesterov,
    )  # fmt: skip
