"""Entry points of the update of parameters."""

from __future__ import annotations

import numpy as np

from edgeddl.errors import KernelError
from edgeddl.kernels.checks import check_flat, check_kind, check_shape, check_writable
from edgeddl.kernels.layout import Array
from edgeddl.kernels.matrices import Products, check_thin
from edgeddl.kernels.segments import check_segments
from edgeddl.kernels.selection import selected


def momentum_sgd(
    parameters: Array,
    gradients: Array,
    velocity: Array,
    segments: Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """One step in place, over flat arrays: v = momentum * v + d;  p -= learning_rate * v.

    d = gradient + weight_decay * p; with Nesterov's momentum, p -= learning_rate * (d + momentum
    * v). Each segment (an array of SEGMENT) has its weight decay; the rest stays as it is.
    """
    check_flat(np.size(parameters), parameters=parameters, gradients=gradients, velocity=velocity)
    check_writable("parameters", parameters, gradients=gradients, velocity=velocity)
    check_writable("velocity", velocity, gradients=gradients)
    check_segments(segments, parameters.size)
    selected.implementation.momentum_sgd(
        parameters, gradients, velocity, segments, learning_rate, momentum, nesterov
    )


def momentum_sgd_of_products(
    parameters: Array,
    products: Products,
    velocity: Array,
    weight_decays: Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """The same for matrices whose gradients are products, which nobody needs to write to memory.

    Each matrix has its weight decay (float64).
    """
    matrices = products.matrices
    check_flat(np.size(parameters), parameters=parameters, velocity=velocity)
    check_kind("weight_decays", weight_decays, (np.float64,))
    check_shape("weight_decays", weight_decays.shape, matrices.table.shape)
    if not 0 <= products.start <= parameters.size - matrices.gradients:
        raise KernelError(
            f"products for {matrices.gradients} gradients from {products.start} on do not fit into"
            f" {parameters.size} parameters"
        )
    check_thin(matrices, products.lefts, products.rights)
    thin = {"lefts": products.lefts, "rights": products.rights}
    check_writable("parameters", parameters, velocity=velocity, **thin)
    check_writable("velocity", velocity, **thin)
    selected.implementation.momentum_sgd_of_products(
        parameters, products, velocity, weight_decays, learning_rate, momentum, nesterov
    )
