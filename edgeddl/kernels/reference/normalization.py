"""Batch normalisation over the rows (pixels of all images) of each channel.

y = x * scale + shift, by the same float32 operations forward and where backward asks for the sign
of y again: so a ReLU that follows need not keep y.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from edgeddl.kernels.layout import Array, as_rows, from_rows
from edgeddl.kernels.moments import Moments, NormalizationGradients, Running
from edgeddl.kernels.prologue import Prologue
from edgeddl.kernels.reference.blocks import column_sums, row_blocks, scratch_for
from edgeddl.kernels.reference.elementwise import relu_backward, stored


def inverse_std(var: Array, eps: float) -> Array:
    """1 / sqrt(var + eps) in float64."""
    return 1.0 / np.sqrt(var.astype(np.float64) + eps)


def _find_moments(rows: Array, running: Running | None) -> Moments:
    """The mean and biased variance of each column; running statistics, if given, are updated."""
    moments = Moments(*_moments(rows))
    if running is not None:
        mean, var, decay = running
        unbiased = len(rows) / max(len(rows) - 1.0, 1.0)
        mean[...] = decay * mean + (1 - decay) * moments.mean
        var[...] = decay * var + (1 - decay) * unbiased * moments.var
    return moments


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


def batch_normalization_prologue(
    x: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    running: Running | None,
) -> tuple[Prologue, Moments]:
    """The batch normalisation as x * scale + shift, and the moments."""
    moments = moments or _find_moments(as_rows(x), running)
    return _scale_and_shift(gamma, beta, moments, eps), moments


def _scale_and_shift(gamma: Array, beta: Array, moments: Moments, eps: float) -> Prologue:
    """By the same operations as in the C code.

    The shift is for the scale as rounded: so at x = mean, y is beta but for the last two roundings,
    however large the mean.
    """
    mean, var = moments
    scale = (gamma / np.sqrt(var.astype(np.float64) + eps)).astype(np.float32)
    shift = beta - mean.astype(np.float64) * scale
    return Prologue(scale, shift.astype(np.float32))


def batch_normalization_forward(
    x: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    relu: bool,
    residual: Array | None,
    in_place: bool,
    running: Running | None,
) -> tuple[Array, Moments]:
    """y = gamma * (x - mean) / sqrt(var + eps) + beta; its ReLU, or that of y + residual.

    And the moments. Nothing is done in place.
    """
    rows = as_rows(x)
    added = None if residual is None else as_rows(residual)
    moments = moments or _find_moments(rows, running)
    form = _scale_and_shift(gamma, beta, moments, eps)
    y = np.empty_like(rows)
    for block in row_blocks(rows):
        part = _normalize(rows[block], *form, out=y[block])
        if added is not None:
            part += added[block]
        if relu or added is not None:
            np.maximum(part, np.float32(0), out=part)
    return from_rows(y, x.shape), moments


def _normalize(rows: Array, scale: Array, shift: Array, out: Array) -> Array:
    np.multiply(rows, scale, out=out)
    out += shift
    return out


def batch_normalization_backward(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    moments: Moments,
    eps: float,
    relu: bool,
    y: Array | None,
    fixed: bool,
    in_place: bool,
    y_in_place: bool,
    out_gamma: Array | None,
    out_beta: Array | None,
) -> NormalizationGradients:
    """gx, ggamma, gbeta, and g where there is a y, which went with a residual.

    g is the gradient of what was normalised, and of the residual. Nothing is done in place.
    """
    rows, g = as_rows(x), gy if y is None else relu_backward(y, gy)
    mean, var = moments
    form = _scale_and_shift(gamma, beta, moments, eps) if relu and y is None else None
    blocks = partial(_gradient_blocks, rows, as_rows(g), form)
    sums = ggamma, gbeta = _sums(rows, blocks(), mean, var, eps)
    if fixed:  # x has no part in the statistics
        ggamma = gbeta = np.zeros_like(ggamma)
    inv_std, m = inverse_std(var, eps).astype(np.float32), np.float32(max(len(rows), 1))
    x_scale, y_shift = inv_std * ggamma / m, gbeta / m
    gx, scratch = np.empty_like(rows), scratch_for(rows)
    for block, g_block in blocks():
        from_x = np.subtract(rows[block], mean, out=scratch[: block.stop - block.start])
        from_x *= x_scale
        part = np.subtract(g_block, y_shift, out=gx[block])
        part -= from_x
        part *= gamma * inv_std
    gx = from_rows(gx, x.shape)
    ggamma, gbeta = stored(sums[0], out_gamma), stored(sums[1], out_beta)
    return NormalizationGradients(gx, ggamma, gbeta, None if y is None else g)


def _sums(
    rows: Array, blocks: Iterator[tuple[slice, Array]], mean: Array, var: Array, eps: float
) -> tuple[Array, Array]:
    ggamma, gbeta = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    scratch = scratch_for(rows)
    for block, g in blocks:
        part = np.subtract(rows[block], mean, out=scratch[: block.stop - block.start])
        part *= g
        ggamma += column_sums(part)
        gbeta += column_sums(g)
    return (ggamma * inverse_std(var, eps)).astype(np.float32), gbeta.astype(np.float32)


def _gradient_blocks(
    rows: Array, gy: Array, scale_shift: tuple[Array, Array] | None
) -> Iterator[tuple[slice, Array]]:
    """Blocks of gy: with scale and shift given, 0 where the ReLU was 0."""
    scratch = scratch_for(rows)
    for block in row_blocks(rows):
        if scale_shift is None:
            yield block, gy[block]
            continue
        y = _normalize(rows[block], *scale_shift, out=scratch[: block.stop - block.start])
        yield block, np.where(y > 0, gy[block], np.float32(0))
