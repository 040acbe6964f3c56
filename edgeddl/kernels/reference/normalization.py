"""Batch normalisation over the rows (pixels of all images) of each channel.

y = x * scale + shift. Backward repeats the same float32 operations where it needs the sign of y, so
a ReLU that follows need not keep y.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from edgeddl.kernels.batch_statistics import (
    BatchStatistics,
    FoldedNormalization,
    NormalizationGradients,
    RunningStatistics,
)
from edgeddl.kernels.layout import Array, as_rows, from_rows
from edgeddl.kernels.reference.blocks import column_sums, row_blocks, scratch_for
from edgeddl.kernels.reference.elementwise import relu_backward, stored


def inverse_std(var: Array, eps: float) -> Array:
    """1 / sqrt(var + eps) in float64."""
    return 1.0 / np.sqrt(var.astype(np.float64) + eps)


def _batch_statistics(rows: Array, running: RunningStatistics | None) -> BatchStatistics:
    """The mean and biased variance of each column; running statistics, if given, are updated."""
    statistics = BatchStatistics(*_mean_and_var(rows))
    if running is not None:
        mean, var, decay = running
        unbiased = len(rows) / max(len(rows) - 1.0, 1.0)
        mean[...] = decay * mean + (1 - decay) * statistics.mean
        var[...] = decay * var + (1 - decay) * unbiased * statistics.var
    return statistics


def _mean_and_var(rows: Array) -> tuple[Array, Array]:
    """Mean and biased variance of each column, in one pass over memory.

    Blocks are combined by the update of Chan, Golub and LeVeque (1979), in float64.
    """
    count, mean, squares = 0, np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    scratch = scratch_for(rows)
    for block in row_blocks(rows):
        n = block.stop - block.start
        block_mean, block_squares = _block_mean_and_squares(rows[block], scratch[:n])
        delta = block_mean - mean
        squares += block_squares + delta**2 * (count * n / (count + n))
        count += n
        mean += delta * (n / count)
    return mean.astype(np.float32), (squares / count).astype(np.float32)


def _block_mean_and_squares(rows: Array, scratch: Array) -> tuple[Array, Array]:
    """Mean and sum of squared deviations of each column in float64.

    The float32 mean is only near the mean: deviations from it are small, and their mean adds the
    missing digits.
    """
    n = len(rows)
    near = column_sums(rows) / np.float32(n)
    deviation = np.subtract(rows, near, out=scratch)
    drift = column_sums(deviation).astype(np.float64) / n
    squares = column_sums(np.square(deviation, out=deviation)) - n * drift**2
    return near + drift, np.maximum(squares, 0)


def batch_normalization_fold(
    x: Array,
    gamma: Array,
    beta: Array,
    statistics: BatchStatistics | None,
    eps: float,
    running: RunningStatistics | None,
) -> tuple[FoldedNormalization, BatchStatistics]:
    """The batch normalisation as x * scale + shift, and the statistics."""
    statistics = statistics or _batch_statistics(as_rows(x), running)
    return _fold(gamma, beta, statistics, eps), statistics


def _fold(
    gamma: Array, beta: Array, statistics: BatchStatistics, eps: float
) -> FoldedNormalization:
    """The same operations as in C.

    The shift is computed from the rounded scale: so at x = mean, y is beta but for the last two
    roundings, however large the mean.
    """
    mean, var = statistics
    scale = (gamma / np.sqrt(var.astype(np.float64) + eps)).astype(np.float32)
    shift = beta - mean.astype(np.float64) * scale
    return FoldedNormalization(scale, shift.astype(np.float32))


def batch_normalization_forward(
    x: Array,
    gamma: Array,
    beta: Array,
    statistics: BatchStatistics | None,
    eps: float,
    relu: bool,
    residual: Array | None,
    running: RunningStatistics | None,
) -> tuple[Array, BatchStatistics]:
    """y = gamma * (x - mean) / sqrt(var + eps) + beta, its ReLU, or the ReLU of y + residual.

    Also returns the statistics.
    """
    rows = as_rows(x)
    added = None if residual is None else as_rows(residual)
    statistics = statistics or _batch_statistics(rows, running)
    folded = _fold(gamma, beta, statistics, eps)
    y = np.empty_like(rows)
    for block in row_blocks(rows):
        part = _normalize(rows[block], *folded, out=y[block])
        if added is not None:
            part += added[block]
        if relu or added is not None:
            np.maximum(part, np.float32(0), out=part)
    return from_rows(y, x.shape), statistics


def _normalize(rows: Array, scale: Array, shift: Array, out: Array) -> Array:
    np.multiply(rows, scale, out=out)
    out += shift
    return out


def batch_normalization_backward(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    statistics: BatchStatistics,
    eps: float,
    relu: bool,
    y: Array | None,
    fixed: bool,
    out_gamma: Array | None,
    out_beta: Array | None,
) -> NormalizationGradients:
    """gx, ggamma, gbeta and, with y (after a residual), g.

    g is the gradient of the normalised x and of the residual.
    """
    rows, g = as_rows(x), gy if y is None else relu_backward(y, gy)
    mean, var = statistics
    folded = _fold(gamma, beta, statistics, eps) if relu and y is None else None
    blocks = partial(_gradient_blocks, rows, as_rows(g), folded)
    sums = ggamma, gbeta = _sums(rows, blocks(), mean, var, eps)
    if fixed:  # the statistics do not depend on x
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
    rows: Array, gy: Array, folded: FoldedNormalization | None
) -> Iterator[tuple[slice, Array]]:
    """Blocks of gy; with a folded normalisation given, 0 where its ReLU was 0."""
    scratch = scratch_for(rows)
    for block in row_blocks(rows):
        if folded is None:
            yield block, gy[block]
            continue
        y = _normalize(rows[block], *folded, out=scratch[: block.stop - block.start])
        yield block, np.where(y > 0, gy[block], np.float32(0))
