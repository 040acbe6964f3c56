"""Stochastic gradient descent with momentum over flat arrays."""

from __future__ import annotations

import numpy as np

from edgeddl.errors import KernelError
from edgeddl.kernels.binding import NativeFunction
from edgeddl.kernels.call_queue import flush
from edgeddl.kernels.checks import check_dtype, check_flat, check_shape, check_writable
from edgeddl.kernels.layout import Array
from edgeddl.kernels.matrices import Products, check_thin
from edgeddl.kernels.reference import optimizer as reference
from edgeddl.kernels.segments import check_segments
from edgeddl.kernels.selection import selected

_momentum_sgd = NativeFunction("momentum_sgd", "plwpwddi")
_momentum_sgd_of_products = NativeFunction("momentum_sgd_of_products", "pvllppwwddi")


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
    * v). Each segment (an array of SEGMENT) has its weight decay; other elements are not changed.
    """
    check_flat(np.size(parameters), parameters=parameters, gradients=gradients, velocity=velocity)
    check_writable("parameters", parameters, gradients=gradients, velocity=velocity)
    check_writable("velocity", velocity, gradients=gradients)
    check_segments(segments, parameters.size)
    if selected.library is None:
        reference.momentum_sgd(
            parameters, gradients, velocity, segments, learning_rate, momentum, nesterov
        )
    else:
        flush()  # queued kernels may read the parameters
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
    """The same for matrices whose gradients are products, which are not written to memory.

    Each matrix has its weight decay (float64).
    """
    m, start = products.matrices, products.start
    check_flat(np.size(parameters), parameters=parameters, velocity=velocity)
    check_dtype("weight_decays", weight_decays, (np.float64,))
    check_shape("weight_decays", weight_decays.shape, m.table.shape)
    if not 0 <= start <= parameters.size - m.gradients:
        raise KernelError(
            f"products for {m.gradients} gradients from {start} on do not fit into"
            f" {parameters.size} parameters"
        )
    check_thin(m, products.lefts, products.rights)
    thin = {"lefts": products.lefts, "rights": products.rights}
    check_writable("parameters", parameters, velocity=velocity, **thin)
    check_writable("velocity", velocity, **thin)
    if selected.library is None:
        reference.momentum_sgd_of_products(
            parameters, products, velocity, weight_decays, learning_rate, momentum, nesterov
        )
    else:
        flush()  # queued kernels may read the parameters
        _momentum_sgd_of_products(
            m.table, weight_decays, len(m.table), m.rank, products.lefts, products.rights,
            parameters[start:], velocity[start:], learning_rate, momentum, nesterov,
        )  # fmt: skip
