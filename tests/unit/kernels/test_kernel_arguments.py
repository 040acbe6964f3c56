"""Wrong arguments raise an error that names them, and never crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels.batch_statistics import (
    BatchStatistics,
    FoldedNormalization,
    NormalizationGradients,
    RunningStatistics,
)
from edgeddl.kernels.window import Window
from tests.unit.kernels.layers import random

WINDOW = Window(3, 3)
X, W, GY = random((2, 4, 5, 5), 0), random((6, 4, 3, 3), 1), random((2, 6, 3, 3), 2)
B, GAMMA = random((6,), 3), random((4,), 4)
LABELS = np.zeros(2, np.int32)
ROWS, SQUARE = random((2, 4), 5), random((2, 2), 6)


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def misaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    return memory[1:].view(np.float32).reshape(array.shape)


def overlapping(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An array like this one, and an `out` for the gradient of W that starts at its last number."""
    memory = np.zeros(array.size + W.size, np.float32)
    return memory[: array.size].reshape(array.shape), memory[array.size - 1 : -1].reshape(W.shape)


def in_foreign_memory(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of the same memory; neither is a view of the other or of a third array."""
    memory = bytearray(array.tobytes())
    one, other = (np.frombuffer(memory, np.float32).reshape(array.shape) for _ in range(2))
    return one, other


CONVOLUTION: list[tuple[str, Callable[[], Any]]] = [
    (r"W must have the shape \(any, 4, 3, 3\), not \(6, 2,", lambda: forward(X, W[:, :2])),
    (r"W must have the shape \(any, any, 3, 3\)", lambda: forward(X, W[:, :, :2])),
    ("x must be a NumPy array of float32, not of float64", lambda: forward(X.astype("f8"), W)),
    ("x must be a NumPy array of float32, not of >f4", lambda: forward(X.astype(">f4"), W)),
    ("x must be a NumPy array of float32, not of list", lambda: forward(X.tolist(), W)),
    ("x must be a NumPy array of float32, not of NoneType", lambda: forward(None, W)),
    ("W must be a NumPy array of float32, not of float16", lambda: forward(X, W.astype("f2"))),
    ("x must be aligned", lambda: forward(misaligned(X), W)),
    (r"x must have the shape \(any, any, any, any\)", lambda: forward(X[0], W)),
    ("at least one channel and one pixel", lambda: forward(X[:, :0], W[:, :0])),
    ("at least one channel and one pixel", lambda: forward(X[:, :, :0], W)),
    ("0 output channels cannot be split", lambda: forward(X, W[:0])),
    (r"b must have the shape \(6\), not \(4,\)", lambda: forward(X, W, GAMMA)),
    ("groups=3", lambda: forward(X, W, None, WINDOW, 3)),
    ("groups=0", lambda: forward(X, W, None, WINDOW, 0)),
    ("groups=-1", lambda: forward(X, W, None, WINDOW, -1)),
    ("groups=1.0", lambda: forward(X, W, None, WINDOW, 1.0)),
    ("2 x 9 pixels is smaller than the window", lambda: forward(random((1, 4, 2, 9), 0), W)),
    (r"gy must have the shape \(2, any, 3, 3\)", lambda: weight_gradient(X, GY[:, :, 1:])),
    (r"gy must have the shape \(2, any, 3, 3\)", lambda: weight_gradient(X, GY[:1])),
    (r"out must have the shape \(6, 4, 3, 3\)", lambda: weight_gradient(X, GY, W[:3].copy())),
    ("out must be a NumPy array", lambda: weight_gradient(X, GY, W.astype("f8"))),
    ("out is read-only", lambda: weight_gradient(X, GY, read_only(W))),
    ("out overlaps x", lambda: weight_gradient_over(X, GY)),
    ("out overlaps gy", lambda: weight_gradient(X, *overlapping(GY))),
    (r"gy must have the shape \(2, 6, 3, 3\)", lambda: input_gradient(GY[:, :3], W, X.shape)),
    (r"x_shape must have the shape", lambda: input_gradient(GY, W, (2, 4, 5))),
    (r"x_shape must have the shape", lambda: input_gradient(GY, W, (-2, 4, 5, 5))),
    (r"x_shape must have the shape", lambda: input_gradient(GY, W, (2, 4, -5, 5))),
    (r"x_shape must have the shape", lambda: input_gradient(GY, W, (2, 4, 5.0, 5))),
    ("stride must be at least 1", lambda: Window(3, 3, 0, 1)),
    ("stride must be at least 1", lambda: Window(3, 3, -1, 1)),
    ("window, dilation and stride", lambda: Window(0, 3)),
    ("window, dilation and stride", lambda: Window(3, 3, dy=0)),
    ("padding at least 0", lambda: Window(3, 3, ph=-1)),
    ("whole numbers", lambda: Window(3.0, 3)),  # type: ignore[arg-type]
]


def forward(x: Any, W: Any, b: Any = None, window: Any = WINDOW, groups: Any = 1) -> np.ndarray:
    return kernels.convolution_forward(x, W, b, window, groups)


def weight_gradient(x: Any, gy: Any, out: Any = None) -> np.ndarray:
    return kernels.convolution_weight_gradient(x, gy, WINDOW, out=out)


def weight_gradient_over(x: np.ndarray, gy: np.ndarray) -> np.ndarray:
    x, out = overlapping(x)
    return weight_gradient(x, gy, out)


def input_gradient(gy: Any, W: Any, shape: Any) -> np.ndarray:
    return kernels.convolution_input_gradient(gy, W, shape, WINDOW)


def statistics(x: Any, *running: Any, **options: Any) -> tuple[np.ndarray, BatchStatistics]:
    options["running"] = RunningStatistics(*running, 0.9) if running else None
    return kernels.batch_normalization_forward(x, GAMMA.copy(), GAMMA, None, 1e-5, **options)


def normalized(
    x: Any = X, gamma: Any = GAMMA, var: Any = GAMMA, **options: Any
) -> tuple[np.ndarray, BatchStatistics]:
    known = BatchStatistics(GAMMA, var)
    return kernels.batch_normalization_forward(x, gamma, GAMMA, known, 1e-5, **options)


def folded(gamma: Any = B[:4], known: Any = None, running: Any = None) -> FoldedNormalization:
    return kernels.batch_normalization_fold(X, gamma, GAMMA, known, 1e-5, running)[0]


def normalization_gradients(
    x: Any = X, gy: Any = X, beta: Any = GAMMA, **options: Any
) -> NormalizationGradients:
    known = (GAMMA, beta, BatchStatistics(GAMMA, GAMMA), 1e-5)
    return kernels.batch_normalization_backward(x, gy, *known, **options)


def channel_sums_over(gy: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return kernels.channel_sums(gy, rows[0])


NORMALIZATION: list[tuple[str, Callable[[], Any]]] = [
    ("batch is empty", lambda: statistics(X[:0])),
    ("x must have the shape", lambda: statistics(X[0])),
    ("running_mean must have the shape", lambda: statistics(X, B, GAMMA.copy())),
    ("running_var must be a NumPy array", lambda: statistics(X, GAMMA.copy(), [0.0] * 4)),
    ("running_mean is read-only", lambda: statistics(X, read_only(GAMMA), GAMMA.copy())),
    ("running_var is read-only", lambda: statistics(X, GAMMA.copy(), read_only(GAMMA))),
    ("running_mean overlaps running_var", lambda: statistics(X, GAMMA, GAMMA)),
    ("running_var overlaps x", lambda: statistics(X, GAMMA.copy(), X[0, 0, 0, :4])),
    ("running_var overlaps beta", lambda: statistics(X, GAMMA.copy(), GAMMA)),
    (
        "running_mean overlaps residual",
        lambda: statistics(X.copy(), X[0, 0, 0, :4], GAMMA.copy(), residual=X),
    ),
    (
        "cannot be updated with given statistics",
        lambda: normalized(running=RunningStatistics(GAMMA.copy(), GAMMA.copy(), 0.9)),
    ),
    (r"gamma must have the shape \(4\), not \(2,\)", lambda: normalized(gamma=GAMMA[:2])),
    ("var must have the shape", lambda: normalized(var=B)),
    ("x must have the shape", lambda: normalized(X[0])),
    ("gamma must have the shape", lambda: folded(X[0])),
    ("gamma must be a NumPy array", lambda: normalized(gamma=[1.0] * 4, residual=X.copy())),
    (
        "beta must be a NumPy array",
        lambda: kernels.batch_normalization_forward(X, GAMMA, None, None, 1e-5),
    ),
    (
        "running_mean overlaps beta",
        lambda: folded(running=RunningStatistics(GAMMA, X[0, 0, 0, :4], 0.9)),
    ),
    ("var must have the shape", lambda: folded(known=BatchStatistics(GAMMA, B))),
    ("residual must have the shape", lambda: normalized(residual=X[:1])),
    (
        "residual is read-only",
        lambda: normalized(residual=read_only(X), in_place=True),
    ),
    ("residual overlaps x", lambda: normalized(residual=X, in_place=True)),
    ("x must have the shape", lambda: normalization_gradients(X[0])),
    ("gy must have the shape", lambda: normalization_gradients(gy=X[:1])),
    ("y must have the shape", lambda: normalization_gradients(y=X[:1])),
    ("out_gamma must have the shape", lambda: normalization_gradients(out_gamma=GAMMA[:2])),
    ("out_gamma must be contiguous", lambda: normalization_gradients(out_gamma=X[0, :, 0, 0])),
    ("out_beta is read-only", lambda: normalization_gradients(out_beta=read_only(GAMMA))),
    ("out_beta overlaps x", lambda: normalization_gradients(out_beta=X[0, 0, 0, :4])),
    ("beta must have the shape", lambda: normalization_gradients(beta=B)),
    (
        "gy is read-only",
        lambda: normalization_gradients(gy=read_only(X), in_place=True),
    ),
    ("gy overlaps x", lambda: normalization_gradients(in_place=True)),
    (
        "y is read-only",
        lambda: normalization_gradients(y=read_only(X), y_in_place=True),
    ),
    ("y overlaps gy", lambda: normalization_gradients(X.copy(), y=X, y_in_place=True)),
]
OTHERS: list[tuple[str, Callable[[], Any]]] = [
    ("y must have the shape", lambda: kernels.add(X, X[:1])),
    ("y must be a NumPy array", lambda: kernels.add(X, 1.0)),
    ("x must have the shape", lambda: kernels.relu_forward(X[0])),
    ("x must be a NumPy array", lambda: kernels.relu_forward("x")),
    ("gy must have the shape", lambda: kernels.relu_backward(ROWS, X)),
    ("at least one column", lambda: kernels.channel_sums(ROWS[:, :0])),
    ("out must have the shape", lambda: kernels.channel_sums(ROWS, ROWS[0, :1])),
    ("out is read-only", lambda: kernels.channel_sums(X, read_only(GAMMA))),
    ("out overlaps gy", lambda: kernels.channel_sums(ROWS, ROWS[0])),
    ("out overlaps gy", lambda: channel_sums_over(*in_foreign_memory(ROWS))),
    ("out overlaps gy", lambda: channel_sums_over(ROWS, as_strided(ROWS))),
    ("does not support dilation", lambda: kernels.max_pooling_forward(X, Window(2, 2, dx=2))),
    ("y must have the shape", lambda: kernels.max_pooling_backward(X, X, X, WINDOW)),
    ("gy must have the shape", lambda: kernels.average_pooling_backward(X, X.shape, WINDOW)),
    ("x_shape must have", lambda: kernels.average_pooling_backward(GY, (2, 6, 0, 5), WINDOW)),
    ("x_shape must have", lambda: kernels.global_average_backward(ROWS, (2, 4, -1, 5))),
    ("gy must have the shape", lambda: kernels.global_average_backward(ROWS, (3, 4, 1, 5))),
    ("W must have the shape", lambda: kernels.linear_forward(ROWS, ROWS[:, :3], None)),
    (
        "out overlaps x",
        lambda: kernels.linear_weight_gradient(ROWS[:, :2], ROWS[:, :2], ROWS[:, :2].T),
    ),
    ("t must be int32", lambda: kernels.softmax_cross_entropy(ROWS, LABELS.astype("i8"))),
    (r"t\[0\] is 4", lambda: kernels.softmax_cross_entropy(ROWS, LABELS + np.int32(4))),
    (r"t\[0\] is -7", lambda: kernels.softmax_cross_entropy(ROWS, LABELS - np.int32(7))),
]


@pytest.mark.parametrize(("message", "call"), CONVOLUTION + NORMALIZATION + OTHERS)
def test_wrong_arguments_are_named(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(KernelError, match=message):
        call()
