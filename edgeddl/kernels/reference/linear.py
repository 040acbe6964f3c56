"""Affine transformation and its gradients: three matrix products."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array


def linear_forward(x: Array, W: Array, b: Array | None) -> Array:
    """y (N, M) = x (N, L) times W (M, L) transposed, plus b (M,)."""
    y = np.matmul(x, W.T)
    if b is not None:
        y += b
    return y


def linear_weight_gradient(x: Array, gy: Array, out: Array | None = None) -> Array:
    """gW (M, L)."""
    if out is None:
        return np.matmul(gy.T, x)
    return np.matmul(gy.T, x, out=out)


def linear_input_gradient(gy: Array, W: Array) -> Array:
    """gx (N, L)."""
    return np.matmul(gy, W)
