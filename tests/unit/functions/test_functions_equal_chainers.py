"""edgeddl's functions give the same results as Chainer's, forward and backward."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeddl import functions
from edgeddl.chainer_compat import F, chainer
from edgeddl.functions import node
from edgeddl.kernels.layout import channels_last


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def run(function: Callable[..., Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The output, and the gradient of every input for a random gradient of the output."""
    variables = [chainer.Variable(array.copy(order="K")) for array in arrays]
    y = function(*variables)
    y.grad = random(*y.shape, seed=9)
    y.backward()
    return [y.array, *(variable.grad for variable in variables)]


def assert_same(
    ours: Callable[..., Any], chainers: Callable[..., Any], *arrays: np.ndarray
) -> None:
    """Equal except for the order of summation: within 1e-4 of each array's largest number.

    Sums here have at most 2,304 products, so differences stay below 50 roundings of 2^-24.
    """
    found, expected = run(ours, list(arrays)), run(chainers, list(arrays))
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * max(abs(other).max(), 1e-3))


@pytest.fixture(autouse=True)
def no_warnings():
    """Turn warnings into errors: a fallback to Chainer would compare Chainer with itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("ksize", "stride", "pad"),
    [(3, 1, 1), (3, 2, 1), (1, 2, 0), ((2, 5), (1, 3), (0, 2)), (7, 2, 3)],
)
def test_convolution_2d(ksize: Any, stride: Any, pad: Any, bias: bool) -> None:
    kh, kw = node.pair(ksize)
    arrays = [random(3, 16, 9, 8), random(12, 16, kh, kw), *([random(12)] if bias else [])]
    assert_same(
        lambda *inputs: functions.convolution_2d(*inputs, stride=stride, pad=pad),
        lambda *inputs: F.convolution_2d(*inputs, stride=stride, pad=pad),
        *arrays,
    )


@pytest.mark.parametrize(
    ("channels", "outputs", "options"),
    [
        (16, 12, {"groups": 4, "pad": 1}),
        (16, 12, {"dilate": 2, "pad": 1}),
        (16, 12, {"dilate": (1, 3), "stride": (2, 1), "pad": (0, 4)}),
        (6, 9, {"groups": 3, "dilate": (2, 1), "stride": 2, "pad": 2}),
        (5, 5, {"groups": 5, "stride": 2, "pad": 1}),
        (5, 15, {"groups": 5}),
    ],
    ids=str,
)
def test_convolution_2d_with_groups_and_dilation(
    channels: int, outputs: int, options: dict[str, Any]
) -> None:
    weights = random(outputs, channels // options.get("groups", 1), 3, 3)
    assert_same(
        lambda *inputs: functions.convolution_2d(*inputs, **options),
        lambda *inputs: F.convolution_2d(*inputs, **options),
        random(3, channels, 9, 8),
        weights,
        random(outputs),
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("multiplier", [1, 3])
def test_depthwise_convolution_2d(multiplier: int, bias: bool) -> None:
    arrays = [random(3, 5, 9, 8), random(multiplier, 5, 3, 3)]
    assert_same(
        lambda *inputs: functions.depthwise_convolution_2d(*inputs, stride=2, pad=1),
        lambda *inputs: F.depthwise_convolution_2d(*inputs, stride=2, pad=1),
        *arrays,
        *([random(5 * multiplier)] if bias else []),
    )


@pytest.mark.parametrize("shape", [(4, 6, 5, 7), (32, 6), (2, 300, 16, 16)])
@pytest.mark.parametrize("axis", [None, "given"])
def test_batch_normalization(shape: tuple[int, ...], axis: Any) -> None:
    arrays = [random(*shape) + 2, random(shape[1], seed=1), random(shape[1], seed=2)]
    axes = (0, 2, 3)[: len(shape) - 1] if axis else None
    statistics = np.full((2, 2, shape[1]), 0.5, np.float32)  # ours or Chainer's, mean or variance

    def normalize(module: Any, mean: np.ndarray, var: np.ndarray) -> Callable[..., Any]:
        return lambda *inputs: module.batch_normalization(
            *inputs, eps=1e-4, running_mean=mean, running_var=var, decay=0.8, axis=axes
        )

    assert_same(normalize(functions, *statistics[0]), normalize(F, *statistics[1]), *arrays)
    assert (statistics != 0.5).all()
    np.testing.assert_allclose(statistics[0], statistics[1], rtol=1e-5, atol=1e-6)


def test_running_variance_is_unbiased() -> None:
    """Two numbers a and b have the unbiased variance (a - b)^2 / 2."""
    x = np.array([[1.0], [5.0]], np.float32)
    one, mean, var = np.ones(1, np.float32), np.zeros(1, np.float32), np.zeros(1, np.float32)
    functions.batch_normalization(x, one, one, running_mean=mean, running_var=var, decay=0.0)
    assert (mean[0], var[0]) == (3.0, 8.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_running_statistics_may_be_strided(dtype: type) -> None:
    x, one = random(4, 3, 5, 5), np.ones(3, np.float32)
    strided = np.zeros((2, 6), dtype)[:, ::2]
    plain = np.zeros((2, 3), dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # float64 falls back to Chainer
        for (mean, var), library in ((strided, functions), (plain, F)):
            library.batch_normalization(x, one, one, running_mean=mean, running_var=var)
    np.testing.assert_allclose(strided, plain, rtol=1e-5, atol=1e-6)


def test_fixed_batch_normalization() -> None:
    statistics = random(6, seed=3), abs(random(6, seed=4)) + 0.1
    assert_same(
        lambda *inputs: functions.fixed_batch_normalization(*inputs, *statistics),
        lambda *inputs: F.fixed_batch_normalization(*inputs, *statistics),
        random(4, 6, 5, 7),
        random(6, seed=1),
        random(6, seed=2),
    )


@pytest.mark.parametrize("shape", [(4, 6, 5, 7), (32, 6)])
@pytest.mark.parametrize("adds", [False, True], ids=["relu", "add_relu"])
def test_fused_batch_normalization(shape: tuple[int, ...], adds: bool) -> None:
    c = shape[1]
    arrays = [random(*shape) + 2, random(c, seed=1), random(c, seed=2)]
    residual = [random(*shape, seed=3)] if adds else []
    ours, chainers = np.full((2, 2, c), 0.5, np.float32)

    def fused(x: Any, gamma: Any, beta: Any, *residual: Any) -> Any:
        function = (
            functions.batch_normalization_add_relu if adds else functions.batch_normalization_relu
        )
        statistics = {"running_mean": ours[0], "running_var": ours[1], "decay": 0.8}
        return function(x, *residual, gamma, beta, eps=1e-4, **statistics)

    def composed(x: Any, gamma: Any, beta: Any, *residual: Any) -> Any:
        statistics = {"running_mean": chainers[0], "running_var": chainers[1], "decay": 0.8}
        y = F.batch_normalization(x, gamma, beta, eps=1e-4, **statistics)
        return F.relu(F.add(y, *residual) if residual else y)

    assert_same(fused, composed, *arrays, *residual)
    assert (ours != 0.5).all()
    np.testing.assert_allclose(ours, chainers, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("adds", [False, True], ids=["relu", "add_relu"])
def test_fused_fixed_batch_normalization(adds: bool) -> None:
    statistics = random(6, seed=3), abs(random(6, seed=4)) + 0.1
    residual = [random(4, 6, 5, 7, seed=5)] if adds else []

    def fused(x: Any, gamma: Any, beta: Any, *residual: Any) -> Any:
        function = (
            functions.fixed_batch_normalization_add_relu
            if adds
            else functions.fixed_batch_normalization_relu
        )
        return function(x, *residual, gamma, beta, *statistics)

    def composed(x: Any, gamma: Any, beta: Any, *residual: Any) -> Any:
        y = F.fixed_batch_normalization(x, gamma, beta, *statistics)
        return F.relu(F.add(y, *residual) if residual else y)

    arrays = [random(4, 6, 5, 7), random(6, seed=1), random(6, seed=2)]
    assert_same(fused, composed, *arrays, *residual)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("shape", "axes"), [((5, 12), 1), ((5, 3, 2, 2), 1), ((5, 4, 12), 2)])
def test_linear(shape: tuple[int, ...], axes: int, bias: bool) -> None:
    arrays = [random(*shape), random(7, 12), *([random(7)] if bias else [])]
    assert_same(
        lambda *inputs: functions.linear(*inputs, n_batch_axes=axes),
        lambda *inputs: F.linear(*inputs, n_batch_axes=axes),
        *arrays,
    )


def test_linear_flattens_a_channels_last_array_in_chainers_order() -> None:
    assert_same(functions.linear, F.linear, channels_last(random(5, 3, 2, 2)), random(7, 12))


@pytest.mark.parametrize(
    "options",
    [
        {"ksize": 2},
        {"ksize": 3, "stride": 2, "pad": 1, "cover_all": False},
        {"ksize": (3, 2), "stride": (2, 1), "pad": (0, 1)},
    ],
    ids=str,
)
@pytest.mark.parametrize("ties", [False, True])
def test_max_pooling_2d(options: dict[str, Any], ties: bool) -> None:
    x = np.maximum(np.round(random(3, 5, 9, 8)), 0) if ties else random(3, 5, 9, 8)
    assert_same(
        lambda x: functions.max_pooling_2d(x, **options),
        lambda x: F.max_pooling_2d(x, **options),
        x,
    )


@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (7, 9)])
def test_relu(shape: tuple[int, ...]) -> None:
    assert_same(functions.relu, F.relu, random(*shape))


def test_global_average_pooling_2d() -> None:
    x = random(3, 5, 4, 6)
    assert_same(functions.global_average_pooling_2d, lambda x: F.mean(x, axis=(2, 3)), x)


def test_gradient_matches_finite_differences() -> None:
    """Finite differences in a random direction, through all functions at once.

    The loss is mostly quadratic. With a step of 1e-2, curvature and rounding each cause errors of
    about 1e-4 of the slope.
    """
    W, gamma, V = random(4, 3, 3, 3), random(4, seed=1), random(5, 4, seed=2)

    def loss_of(x: np.ndarray) -> chainer.Variable:
        h = functions.convolution_2d(x, W, pad=1, stride=2)
        h = functions.batch_normalization(h, gamma, gamma)
        h = functions.max_pooling_2d(functions.relu(h), 2, stride=1)
        return F.sum(functions.linear(functions.global_average_pooling_2d(h), V) ** 2)

    x, direction = random(4, 3, 7, 7, seed=3), random(4, 3, 7, 7, seed=4)
    variable = chainer.Variable(x)
    loss_of(variable).backward()
    step = np.float32(1e-2 / np.linalg.norm(direction))
    rise = loss_of(x + step * direction).array - loss_of(x - step * direction).array
    slope = float((variable.grad * direction).sum())
    np.testing.assert_allclose(rise / (2 * step), slope, rtol=1e-2)


@pytest.mark.parametrize(
    "options",
    [{"ksize": 2}, {"ksize": 3, "stride": 2, "pad": 1}, {"ksize": (3, 2), "stride": (2, 1)}],
    ids=str,
)
def test_average_pooling_2d(options: dict[str, Any]) -> None:
    assert_same(
        lambda x: functions.average_pooling_2d(x, **options),
        lambda x: F.average_pooling_2d(x, **options),
        random(3, 5, 9, 8),
    )


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (7, 9)])
def test_add(shape: tuple[int, ...], count: int) -> None:
    assert_same(functions.add, F.add, *(random(*shape, seed=seed) for seed in range(count)))


LABELS = np.array([0, 4, 2, 2, 1, 0, 3], np.int32)


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        (LABELS, {}),
        (LABELS.astype(np.int64), {}),
        (np.where(LABELS == 2, -1, LABELS).astype(np.int32), {}),
        (LABELS, {"ignore_label": 0}),
        (np.full(7, -1, np.int32), {}),
    ],
    ids=["int32", "int64", "some ignored", "zeros ignored", "all ignored"],
)
def test_softmax_cross_entropy(labels: np.ndarray, options: dict[str, Any]) -> None:
    assert_same(
        lambda x: functions.softmax_cross_entropy(x, labels, **options),
        lambda x: F.softmax_cross_entropy(x, labels, **options),
        10 * random(7, 5),
    )


def test_smoothed_softmax_cross_entropy() -> None:
    def composed(x: Any) -> Any:
        return 0.8 * F.softmax_cross_entropy(x, LABELS) - 0.2 * F.average(F.log_softmax(x))

    assert_same(
        lambda x: functions.smoothed_softmax_cross_entropy(x, LABELS, 0.2), composed, random(7, 5)
    )
