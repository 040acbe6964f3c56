"""Softmax cross-entropy against float64 and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError

pytestmark = pytest.mark.usefixtures("implementation")


def random(n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng([n, classes])
    x = 3 * draw.standard_normal((n, classes), np.float32)
    return x, draw.integers(0, classes, n).astype(np.int32)


def exact_loss(x: np.ndarray, t: np.ndarray, smoothing: float, ignore_label: int = -1) -> float:
    x = x.astype(np.float64)
    log_softmax = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    rows = [
        (1 - smoothing) * row[label] + smoothing * row.mean()
        for row, label in zip(log_softmax, t, strict=True)
        if label != ignore_label
    ]
    return -float(np.mean(rows)) if rows else 0.0


SHAPES = [(1, 1), (1, 10), (7, 3), (64, 10), (33, 1000), (5, 17)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("n", "classes"), SHAPES)
def test_loss_and_gradient_match_float64(n: int, classes: int, smoothing: float) -> None:
    x, t = random(n, classes)
    loss, gradient = kernels.softmax_cross_entropy(x, t, smoothing)
    # A float32 loss from one float32 exponential per class: a few roundings.
    assert float(loss) == pytest.approx(exact_loss(x, t, smoothing), rel=1e-5, abs=1e-6)
    softmax = np.exp(x.astype(np.float64))
    softmax /= softmax.sum(axis=1, keepdims=True)
    target = np.full((n, classes), smoothing / classes)
    target[np.arange(n), t] += 1 - smoothing
    np.testing.assert_allclose(gradient, (softmax - target) / n, rtol=1e-5, atol=2e-7 / n)
    assert gradient.dtype == np.float32


def test_gradient_matches_finite_differences() -> None:
    x, t = random(4, 5)
    _, gradient = kernels.softmax_cross_entropy(x, t, 0.2)
    for index in np.ndindex(*x.shape):
        steps = np.zeros(x.shape)
        steps[index] = 1e-6
        slope = (exact_loss(x + steps, t, 0.2) - exact_loss(x - steps, t, 0.2)) / 2e-6
        assert gradient[index] == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("ignored", [-1, 2, 255])
def test_ignored_rows_do_not_count(ignored: int) -> None:
    x, t = random(9, 4)
    t[[0, 3, 8]] = ignored
    counted = t != ignored
    assert 0 < counted.sum() < 9
    loss, gradient = kernels.softmax_cross_entropy(x, t, 0.1, ignored)
    alone = kernels.softmax_cross_entropy(x[counted], t[counted], 0.1)
    assert float(loss) == pytest.approx(float(alone[0]), rel=1e-6)
    np.testing.assert_allclose(gradient[counted], alone[1], rtol=1e-6, atol=1e-9)
    assert not gradient[~counted].any()


@pytest.mark.parametrize("n", [0, 3])
def test_the_loss_is_zero_if_all_rows_are_ignored(n: int) -> None:
    loss, gradient = kernels.softmax_cross_entropy(random(n, 4)[0], np.full(n, -1, np.int32))
    assert float(loss) == 0 and gradient.shape == (n, 4) and not gradient.any()


def test_large_logits_do_not_overflow() -> None:
    x = np.array([[1e4, -1e4, 0], [-3e38, 0, 3e38]], np.float32)
    loss, gradient = kernels.softmax_cross_entropy(x, np.array([0, 2], np.int32))
    assert float(loss) == 0 and not gradient.any()
    loss, _ = kernels.softmax_cross_entropy(x[:1], np.array([1], np.int32))
    assert float(loss) == pytest.approx(2e4)


def test_a_logit_of_minus_infinity_does_not_affect_other_classes() -> None:
    x = np.array([[1, -np.inf, 2]], np.float32)
    loss, gradient = kernels.softmax_cross_entropy(x, np.array([2], np.int32))
    assert float(loss) == pytest.approx(np.log(1 + np.exp(-1)), rel=1e-5)
    assert gradient[0, 1] == 0 and np.isfinite(gradient).all()


def test_nan_propagates() -> None:
    x, t = random(3, 4)
    x[1, 2] = np.nan
    loss, gradient = kernels.softmax_cross_entropy(x, t)
    assert np.isnan(float(loss)) and np.isnan(gradient[1]).all()
    assert np.isfinite(gradient[[0, 2]]).all()


def test_results_do_not_depend_on_strides() -> None:
    x, t = random(6, 5)
    loss, gradient = kernels.softmax_cross_entropy(x, t)
    for other in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        again = kernels.softmax_cross_entropy(other, np.repeat(t, 2)[::2])
        assert float(again[0]) == float(loss)
        np.testing.assert_array_equal(again[1], gradient)


def test_wrong_arguments_are_named() -> None:
    x, t = random(3, 4)
    with pytest.raises(KernelError, match=r"t must be below 4 or -1 .* t\[1\] is 4"):
        kernels.softmax_cross_entropy(x, np.array([0, 4, 5], np.int32))
    with pytest.raises(KernelError, match=r"t\[2\] is -2"):
        kernels.softmax_cross_entropy(x, np.array([0, -1, -2], np.int32))
    with pytest.raises(KernelError, match=r"t must be int32 of shape \(3\), not int64"):
        kernels.softmax_cross_entropy(x, t.astype(np.int64))
    with pytest.raises(KernelError, match=r"not int32 of \(2,\)"):
        kernels.softmax_cross_entropy(x, t[:2])
    with pytest.raises(KernelError, match=r"x must have the shape \(any, any\)"):
        kernels.softmax_cross_entropy(x[None], t)
    with pytest.raises(KernelError, match="at least one column"):
        kernels.softmax_cross_entropy(x[:, :0], t)
