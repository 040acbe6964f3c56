"""Links: interchangeable with Chainer's, and deterministic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeddl import functions
from edgeddl.chainer_compat import F, L, chainer
from edgeddl.links import BatchNormalization, Convolution2D, Linear


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class Narrow(chainer.Chain):
    """A residual network of a few channels, with edgeddl's links or with Chainer's."""

    def __init__(self, *, stock: bool) -> None:
        super().__init__()
        self.f: Any = F if stock else functions
        conv, bn, linear = (
            (L.Convolution2D, L.BatchNormalization, L.Linear)
            if stock
            else (Convolution2D, BatchNormalization, Linear)
        )
        options = {} if stock else {"rng": rng()}
        with self.init_scope():
            self.conv1 = conv(3, 8, 3, 1, 1, nobias=True, **options)
            self.bn1 = bn(8)
            self.conv2 = conv(8, 8, 3, 1, 1, **options)
            self.bn2 = bn(8)
            self.conv3 = conv(8, 12, 3, 2, 1, **options)
            self.head = linear(12, 4, **options)

    def forward(self, x: np.ndarray) -> chainer.Variable:
        h = self.f.relu(self.bn1(self.conv1(x)))
        h = self.f.relu(h + self.bn2(self.conv2(h)))
        h = self.f.relu(self.conv3(self.f.max_pooling_2d(h, 2)))
        return self.head(F.mean(h, axis=(2, 3)))


def train(model: Narrow, steps: int) -> list[float]:
    """Losses of a few steps on a learnable task: which quarter of the image is bright."""
    optimizer = chainer.optimizers.MomentumSGD(lr=0.05).setup(model)
    draw = rng(1)
    losses = []
    for _ in range(steps):
        t = draw.integers(0, 4, 16).astype(np.int32)
        x = draw.standard_normal((16, 3, 12, 12), np.float32)
        for image, label in zip(x, t, strict=True):
            image[:, 6 * (label // 2) :, 6 * (label % 2) :][:, :6, :6] += 1
        loss = F.softmax_cross_entropy(model(x), t)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        losses.append(float(loss.array))
    return losses


def test_ten_steps_equal_ten_steps_of_chainers_links() -> None:
    """Rounding differences grow with each step; after ten, losses of about 1 agree to 1e-4."""
    ours, stock = Narrow(stock=False), Narrow(stock=True)
    stock.copyparams(ours)
    losses, expected = train(ours, 10), train(stock, 10)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-4)
    assert len(set(losses)) == 10
    for name in ("avg_mean", "avg_var"):
        np.testing.assert_allclose(
            getattr(ours.bn2, name), getattr(stock.bn2, name), rtol=1e-3, atol=1e-4
        )
    x = rng(2).standard_normal((4, 3, 12, 12), np.float32)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        np.testing.assert_allclose(ours(x).array, stock(x).array, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("ours", "stock"),
    [
        (lambda: Convolution2D(3, 5, 3, 2, 1, rng=rng()), lambda: L.Convolution2D(3, 5, 3, 2, 1)),
        (lambda: Convolution2D(5, 3, rng=rng()), lambda: L.Convolution2D(5, 3)),
        (lambda: Linear(6, 4, rng=rng()), lambda: L.Linear(6, 4)),
        (lambda: Linear(None, 4, nobias=True, rng=rng()), lambda: L.Linear(None, 4, nobias=True)),
        (lambda: BatchNormalization(3), lambda: L.BatchNormalization(3)),
        (
            lambda: BatchNormalization(axis=(0, 2, 3), use_beta=False),
            lambda: L.BatchNormalization(axis=(0, 2, 3), use_beta=False),
        ),
    ],
)
def test_parameters_are_interchangeable(tmp_path, ours: Any, stock: Any) -> None:
    ours, stock = ours(), stock()
    shape = (2, 6) if isinstance(ours, Linear) else (2, 3, 8, 8)
    x = rng(3).standard_normal(shape, np.float32)
    stock(x)
    ours(x)
    chainer.serializers.save_npz(tmp_path / "parameters.npz", stock)
    chainer.serializers.load_npz(tmp_path / "parameters.npz", ours)
    names = [(name, p.shape, p.dtype) for name, p in ours.namedparams()]
    assert names == [(name, p.shape, p.dtype) for name, p in stock.namedparams()]
    np.testing.assert_allclose(ours(x).array, stock(x).array, rtol=1e-4, atol=1e-4)


def test_finetuning_averages_over_all_batches() -> None:
    ours, stock = BatchNormalization(3), L.BatchNormalization(3)
    for seed in range(3):
        x = rng(seed).standard_normal((2, 3, 4, 4), np.float32)
        ours(x, finetune=True)
        stock(x, finetune=True)
    assert ours.N == stock.N == 3
    np.testing.assert_allclose(ours.avg_mean, stock.avg_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.avg_var, stock.avg_var, rtol=1e-4, atol=1e-6)


def test_recomputation_does_not_count_twice() -> None:
    """chainer.functions.forget runs a part of the network again in backward."""
    link = BatchNormalization(3)
    x = chainer.Variable(rng().standard_normal((2, 3, 4, 4), np.float32))
    y = F.forget(link, x)
    mean = link.avg_mean.copy()
    y.grad = np.ones_like(y.array)
    y.backward()
    np.testing.assert_array_equal(link.avg_mean, mean)
    assert np.abs(mean).max() > 0


def test_weights_depend_on_the_generator_alone() -> None:
    state = np.random.get_state()[1].copy()
    links = [Convolution2D(3, 8, 3, rng=rng(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    first, same, other = (link.W.array for link in links)
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    with pytest.raises(TypeError, match="rng"):
        Convolution2D(3, 8, 3)
    with pytest.raises(TypeError, match="rng"):
        Linear(3, 8)


def test_weights_have_hes_and_lecuns_deviation() -> None:
    convolution = Convolution2D(32, 128, 3, rng=rng()).W.array
    linear = Linear(256, 256, rng=rng()).W.array
    # 36,864 and 65,536 draws: the deviation of a deviation is 1 / sqrt(2 n), at most 0.4 %.
    np.testing.assert_allclose(convolution.std(), np.sqrt(2 / (32 * 9)), rtol=0.02)
    np.testing.assert_allclose(linear.std(), np.sqrt(1 / 256), rtol=0.02)


def test_convolution_weights_lie_in_kernel_order() -> None:
    for link in (Convolution2D(3, 5, 3, rng=rng()), Convolution2D(None, 5, 3, rng=rng())):
        link(np.zeros((1, 3, 8, 8), np.float32))
        assert link.W.array.transpose(2, 3, 1, 0).flags.c_contiguous
