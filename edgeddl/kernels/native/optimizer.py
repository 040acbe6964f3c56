"""Stochastic gradient descent with momentum over flat arrays, in C."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.deferral import finish
from edgeddl.kernels.layout import Array
from edgeddl.kernels.matrices import Products
from edgeddl.kernels.native.library import load

_momentum_sgd = load().function("momentum_sgd", "plwpwddi")
_momentum_sgd_of_products = load().function("momentum_sgd_of_products", "pvllppwwddi")


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


def momentum_sgd_of_products(
    parameters: Array,
    products: Products,
    velocity: Array,
    weight_decays: Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """One step, in place, that computes gradients where it needs them."""
    m, start = products.matrices, products.start
    finish()  # they may read the parameters
    _momentum_sgd_of_products(
        m.table, weight_decays, len(m.table), m.rank, products.lefts, products.rights,
        parameters[start:], velocity[start:], learning_rate, momentum, nesterov,
    )  # fmt: skip
