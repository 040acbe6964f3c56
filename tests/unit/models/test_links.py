"""Links: interchangeable with Chainer's, and deterministic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeddl import functions
from edgeddl.chainer_compat import F, L, chainer
from edgeddl.links import (
    BatchNormalization,
    Convolution2D,
    ConvolutionBN,
    DepthwiseConvolution2D,
    Linear,
)


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


PAIRS = [
    (lambda: Convolution2D(3, 5, 3, 2, 1, rng=rng()), lambda: L.Convolution2D(3, 5, 3, 2, 1)),
    (lambda: Convolution2D(5, 3, rng=rng()), lambda: L.Convolution2D(5, 3)),
    (
        lambda: Convolution2D(3, 6, 3, groups=3, dilate=2, rng=rng()),
        lambda: L.Convolution2D(3, 6, 3, groups=3, dilate=2),
    ),
    (lambda: DepthwiseConvolution2D(3, 2, 3), lambda: L.DepthwiseConvolution2D(3, 2, 3)),
    (lambda: DepthwiseConvolution2D(None, 2, 3), lambda: L.DepthwiseConvolution2D(None, 2, 3)),
    (lambda: Linear(192, 4, rng=rng()), lambda: L.Linear(192, 4)),
    (lambda: Linear(None, 4, nobias=True, rng=rng()), lambda: L.Linear(None, 4, nobias=True)),
    (lambda: BatchNormalization(3), lambda: L.BatchNormalization(3)),
    (
        lambda: BatchNormalization(axis=(0, 2, 3), use_beta=False),
        lambda: L.BatchNormalization(axis=(0, 2, 3), use_beta=False),
    ),
]


@pytest.mark.parametrize("used", [True, False], ids=["into a used link", "into a new link"])
@pytest.mark.parametrize("back", [False, True], ids=["from Chainer", "to Chainer"])
@pytest.mark.parametrize(("ours", "stock"), PAIRS)
def test_files_are_interchangeable(tmp_path, ours: Any, stock: Any, back: bool, used: bool) -> None:
    source, target = (ours(), stock()) if back else (stock(), ours())
    x = rng(3).standard_normal((2, 3, 8, 8), np.float32)
    source(x)
    if used:
        target(x)
    chainer.serializers.save_npz(tmp_path / "parameters.npz", source)
    chainer.serializers.load_npz(tmp_path / "parameters.npz", target)
    assert contents(target) == contents(source)
    with chainer.using_config("train", False):
        np.testing.assert_allclose(target(x).array, source(x).array, rtol=1e-4, atol=1e-4)
    for link in (source, target):
        if isinstance(link, Convolution2D):
            assert in_kernel_order(link.W.array)


def contents(link: chainer.Link) -> dict[str, Any]:
    """All that is saved: names, types, shapes and numbers."""
    serializer = chainer.serializers.DictionarySerializer()
    serializer.save(link)
    arrays = {name: np.asarray(value) for name, value in serializer.target.items()}
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()}


def in_kernel_order(W: np.ndarray) -> bool:
    return W.transpose(2, 3, 1, 0).flags.c_contiguous


@pytest.mark.parametrize("train", [True, False])
def test_fused_normalisation_equals_its_parts(train: bool) -> None:
    x, h = rng(1).standard_normal((2, 4, 3, 6, 6), np.float32)
    results = []
    for fused in (True, False):
        link = ConvolutionBN(3, 3, 3, rng=rng())
        link.normalization.beta.array[...] = (-0.5, 0.0, 0.5)
        with chainer.using_config("train", train):
            if fused:
                y, z = link(x, relu=True), link(x, residual=h)
            else:
                y, z = F.relu(link(x)), F.relu(link(x) + h)
        loss = F.sum(y * h) + F.sum(z * z)
        link.cleargrads()
        loss.backward()
        gradients = [p.grad for _, p in sorted(link.namedparams())]
        results.append([y.array, z.array, link.normalization.avg_mean, *gradients])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * max(abs(other).max(), 1))


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


@pytest.mark.parametrize(
    ("ours", "stock", "arguments"),
    [
        (Convolution2D, L.Convolution2D, (3, 8, 3)),
        (Convolution2D, L.Convolution2D, (8, 3)),
        (DepthwiseConvolution2D, L.DepthwiseConvolution2D, (3, 2, 3)),
        (Linear, L.Linear, (192, 8)),
        (Linear, L.Linear, (8,)),
    ],
)
def test_without_a_generator_weights_are_chainers(ours: Any, stock: Any, arguments: Any) -> None:
    x = rng().standard_normal((2, 3, 8, 8), np.float32)
    drawn = []
    for kind in (ours, stock):
        np.random.seed(5)
        link = kind(*arguments)
        link(x)
        drawn.append(link.W.array)
    np.testing.assert_array_equal(*drawn)
    assert np.abs(drawn[0]).max() > 0


def test_weights_have_hes_and_lecuns_deviation() -> None:
    convolution = Convolution2D(32, 128, 3, rng=rng()).W.array
    linear = Linear(256, 256, rng=rng()).W.array
    # 36,864 and 65,536 draws: the deviation of a deviation is 1 / sqrt(2 n), at most 0.4 %.
    np.testing.assert_allclose(convolution.std(), np.sqrt(2 / (32 * 9)), rtol=0.02)
    np.testing.assert_allclose(linear.std(), np.sqrt(1 / 256), rtol=0.02)


def test_convolution_weights_lie_in_kernel_order() -> None:
    for link in (Convolution2D(3, 5, 3, rng=rng()), Convolution2D(None, 5, 3, rng=rng())):
        link(np.zeros((1, 3, 8, 8), np.float32))
        assert in_kernel_order(link.W.array)
