"""Batch normalisation over the rows (pixels of all images) of each channel."""

from __future__ import annotations

import numpy as np

from edgeddl.kernels.layout import Array, as_rows, from_rows
from edgeddl.kernels.reference.blocks import column_sums, row_blocks, scratch_for


def inverse_std(var: Array, eps: float) -> Array:
    """1 / sqrt(var + eps) as float32."""
    return (1.0 / np.sqrt(var.astype(np.float64) + eps)).astype(np.float32)


def batch_normalization_forward(
    x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, Array, Array]:
    """y, and the mean and biased variance of each channel over this batch."""
    mean, var = _moments(as_rows(x))
    return batch_normalization_inference(x, gamma, beta, mean, var, eps), mean, var


def _moments(rows: Array) -> tuple[Array, Array]:
    """Mean and biased variance of each column, in one walk over memory.

    Blocks are joined by the update of Chan, Golub and LeVeque (1979), in float64.
    """
    count, mean, squares = 0, np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    scratch = scratch_for(rows)
    for block in row_blocks(rows):
        n = block.stop - block.start
        block_mean, block_squares = _block_moments(rows[block], scratch[:n])
        delta = block_mean - mean
        squares += block_squares + delta**2 * (count * n / (count + n))
        count += n
        mean += delta * (n / count)
    return mean.astype(np.float32), (squares / count).astype(np.float32)


def _block_moments(rows: Array, scratch: Array) -> tuple[Array, Array]:
    """Mean and sum of squared deviations of each column in float64.

    The float32 mean is only a point near it: deviations from that are small, and their own mean
    gives the digits it lacks.
    """
    n = len(rows)
    near = column_sums(rows) / np.float32(n)
    deviation = np.subtract(rows, near, out=scratch)
    drift = column_sums(deviation).astype(np.float64) / n
    squares = column_sums(np.square(deviation, out=deviation)) - n * drift**2
    return near + drift, np.maximum(squares, 0)


def batch_normalization_inference(
    x: Array, gamma: Array, beta: Array, mean: Array, var: Array, eps: float
) -> Array:
    """y = gamma * (x - mean) / sqrt(var + eps) + beta."""
    rows = as_rows(x)
    scale = gamma * inverse_std(var, eps)
    y = np.empty_like(rows)
    for block in row_blocks(rows):
        part = np.subtract(rows[block], mean, out=y[block])
        part *= scale
        part += beta
    return from_rows(y, x.shape)


def batch_normalization_parameter_gradients(
    x: Array, gy: Array, mean: Array, var: Array, eps: float
) -> tuple[Array, Array]:
    """ggamma, gbeta: sums of gy * x_hat and of gy."""
    rows, gy = as_rows(x), as_rows(gy)
    ggamma, gbeta = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    scratch = scratch_for(rows)
    for block in row_blocks(rows):
        part = np.subtract(rows[block], mean, out=scratch[: block.stop - block.start])
        part *= gy[block]
        ggamma += column_sums(part)
        gbeta += column_sums(gy[block])
    return (ggamma * inverse_std(var, eps)).astype(np.float32), gbeta.astype(np.float32)


def batch_normalization_input_gradient(
    x: Array,
    gy: Array,
    gamma: Array,
    mean: Array,
    var: Array,
    eps: float,
    ggamma: Array,
    gbeta: Array,
) -> Array:
    """gx = gamma / std * (gy - gbeta / m - x_hat * ggamma / m), for m rows."""
    rows, gy_rows = as_rows(x), as_rows(gy)
    inv_std, m = inverse_std(var, eps), np.float32(len(rows))
    x_scale, y_shift = inv_std * ggamma / m, gbeta / m
    gx, scratch = np.empty_like(rows), scratch_for(rows)
    for block in row_blocks(rows):
        from_x = np.subtract(rows[block], mean, out=scratch[: block.stop - block.start])
        from_x *= x_scale
        part = np.subtract(gy_rows[block], y_shift, out=gx[block])
        part -= from_x
        part *= gamma * inv_std
    return from_rows(gx, x.shape)
