"""edgeddl.accelerate: Chainer's own models, unchanged, on edgeddl's kernels."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

import edgeddl
from edgeddl import kernels, links
from edgeddl.chainer_compat import F, L, chainer
from edgeddl.kernels.layout import channels_last, conversions, in_kernel_order


class Block(chainer.Chain):
    def __init__(self, c: int) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(c, c, 3, pad=1, nobias=True)
            self.bn = L.BatchNormalization(c)

    def forward(self, x: Any) -> Any:
        return F.relu(self.bn(self.conv(x)) + x)


class StockResNet(chainer.Chain):
    """A small residual network as a user of Chainer writes it."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.stem = L.Convolution2D(None, 8, 3, pad=1)
            self.block = Block(8)
            self.head = L.Linear(None, 5)

    def forward(self, x: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.stem(x)), 2)
        return self.head(F.average_pooling_2d(self.block(h), 4))


class OldStyleNet(StockResNet):
    """Chainer's models had __call__ before they had forward."""

    def __call__(self, x: Any) -> Any:
        return StockResNet.forward(self, x)


class OwnConvolution(L.Convolution2D):
    """A user's own layer."""

    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


def make_sequential() -> Any:
    return chainer.Sequential(
        L.Convolution2D(3, 8, 3, pad=1),
        L.BatchNormalization(8),
        F.relu,
        functools.partial(F.max_pooling_2d, ksize=2),
        lambda h: F.average_pooling_2d(h, 2),
        L.Linear(None, 5),
    )


class Classifier(L.Classifier):
    """Chainer's, with a network in it; it holds its loss function as an attribute."""

    def __init__(self, make: Any = StockResNet) -> None:
        super().__init__(make())


MODELS = {
    "chain": Classifier,
    "old style": functools.partial(Classifier, OldStyleNet),
    "sequential": functools.partial(Classifier, make_sequential),
}
COMMON = {
    "convolution_forward",
    "convolution_weight_gradient",
    "batch_normalization_forward",
    "batch_normalization_backward",
    "relu_forward",
    "relu_backward",
    "max_pooling_forward",
    "max_pooling_backward",
    "average_pooling_forward",
    "average_pooling_backward",
    "linear_forward",
    "linear_weight_gradient",
    "softmax_cross_entropy",
}


@pytest.fixture
def calls(monkeypatch) -> Counter[str]:
    """How often each kernel is called."""
    counter: Counter[str] = Counter()

    def counting(name: str, compute: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            counter[name] += 1
            return compute(*args, **options)

        return call

    for name in COMMON:
        monkeypatch.setattr(kernels, name, counting(name, getattr(kernels, name)))
    return counter


def seeded(make: Any) -> Any:
    np.random.seed(3)
    model = make()
    model(*batch())  # gives parameters without a shape theirs
    return model


def batch(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((6, 3, 8, 8), np.float32)
    return x, draw.integers(0, 5, 6).astype(np.int32)


def train(model: Any, steps: int = 3) -> list[np.ndarray]:
    """Losses, then gradients and values of all parameters after the last step."""
    optimizer = chainer.optimizers.MomentumSGD(lr=0.05).setup(model)
    losses = []
    for step in range(steps):
        loss = model(*batch(step))
        model.cleargrads()
        loss.backward()
        optimizer.update()
        losses.append(loss.array)
    parameters = [p for _, p in sorted(model.namedparams())]
    return [*losses, *(p.grad for p in parameters), *(p.array for p in parameters)]


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Three steps apart by no more than rounding: 1e-4 of each array's largest number.

    Gradients of a bias before a normalisation are zero but for rounding.
    """
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * max(abs(other).max(), 0.01))


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_chainers(name: str, calls: Counter[str]) -> None:
    expected = train(seeded(MODELS[name]))
    assert not calls
    accelerated = seeded(MODELS[name])
    assert edgeddl.accelerate(accelerated) is accelerated
    calls.clear()
    assert_close(train(accelerated), expected)
    assert calls.keys() == COMMON and min(calls.values()) >= 3


def test_chainers_functions_are_chainers_elsewhere(calls: Counter[str]) -> None:
    model, other = edgeddl.accelerate(seeded(Classifier)), seeded(Classifier)
    model(*batch())
    calls.clear()
    other(*batch())
    F.relu(batch()[0])
    assert not calls
    within: list[bool] = []
    inside, done = threading.Event(), threading.Event()

    def compute_meanwhile() -> None:
        inside.wait(30)
        before = calls["relu_forward"]
        F.relu(batch()[0])
        within.append(calls["relu_forward"] == before)
        done.set()

    class Waiting(chainer.Chain):
        def forward(self, x: np.ndarray) -> Any:
            inside.set()
            assert done.wait(30)
            return F.relu(x)

    thread = threading.Thread(target=compute_meanwhile)
    thread.start()
    edgeddl.accelerate(Waiting())(batch()[0])
    thread.join()
    assert within == [True] and calls["relu_forward"] == 1


def test_an_error_in_forward_ends_the_redirection(calls: Counter[str]) -> None:
    class Failing(chainer.Chain):
        def forward(self, x: np.ndarray) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        edgeddl.accelerate(Failing())(batch()[0])
    F.relu(batch()[0])
    assert not calls


def test_unsupported_calls_within_a_model_fall_back_to_chainer() -> None:
    class Covering(chainer.Chain):
        def forward(self, x: np.ndarray) -> Any:
            return F.max_pooling_2d(F.relu(x[0]), 2, return_indices=False)

    x = batch()[0].astype(np.float64)
    with pytest.warns(UserWarning, match="falls back to Chainer"):
        y = edgeddl.accelerate(Covering())(x[None])
    np.testing.assert_array_equal(y.array, F.max_pooling_2d(F.relu(x), 2).array)


def test_layers_are_switched_by_their_exact_type() -> None:
    model = chainer.Sequential(L.Convolution2D(3, 3, 3), OwnConvolution(3, 3, 3), L.Bias(1, (3,)))
    x = batch()[0]
    expected = model(x).array
    edgeddl.accelerate(model)
    assert [type(layer) for layer in model] == [links.Convolution2D, OwnConvolution, L.Bias]
    np.testing.assert_allclose(model(x).array, expected, rtol=1e-4, atol=1e-4)


def test_parameters_are_the_same_objects_and_files_the_same(tmp_path) -> None:
    model = seeded(Classifier)
    chainer.serializers.save_npz(tmp_path / "before.npz", model)
    before = dict(model.namedparams())
    values = {name: parameter.array.copy() for name, parameter in before.items()}
    edgeddl.accelerate(edgeddl.accelerate(model))
    after = dict(model.namedparams())
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in after)
    for name, parameter in after.items():
        np.testing.assert_array_equal(parameter.array, values[name])
    chainer.serializers.save_npz(tmp_path / "after.npz", model)
    one, other = (np.load(tmp_path / name) for name in ("before.npz", "after.npz"))
    assert sorted(one) == sorted(other)
    assert all(np.array_equal(one[name], other[name]) for name in one)
    chainer.serializers.load_npz(tmp_path / "after.npz", seeded(Classifier))


def test_memory_order_is_kept() -> None:
    """Every function and every layer gives arrays as the next one wants them."""
    model = edgeddl.accelerate(seeded(Classifier))
    x, t = batch()
    before = conversions()
    model(channels_last(x), t).backward()
    assert conversions() == before


def train_in_chainers_loop(model: Any, optimizer: Any) -> None:
    for step in range(2):
        loss = model(*batch(step))
        model.zerograds()
        loss.backward()
        optimizer.update()


@pytest.mark.filterwarnings("ignore:.*zerograd.*:DeprecationWarning")
def test_gradient_and_optimizer_have_the_weights_memory_order(tmp_path) -> None:
    """However they came about: an update over arrays of several orders is slow."""

    def make() -> tuple[Any, Any]:
        model = seeded(Classifier)
        return model, chainer.optimizers.Adam().setup(model)

    def assert_ordered(model: Any) -> None:
        convolutions = [link for link in model.links() if isinstance(link, links.Convolution2D)]
        for W in (link.W for link in convolutions):
            arrays = [W.array, W.grad, *W.update_rule.state.values()]
            assert len(arrays) == 4 and all(map(in_kernel_order, arrays))
        assert len(convolutions) == 2

    model, optimizer = make()
    train_in_chainers_loop(edgeddl.accelerate(model), optimizer)  # from its initial gradient
    assert_ordered(model)
    chainer.serializers.save_npz(tmp_path / "model.npz", model)
    chainer.serializers.save_npz(tmp_path / "optimizer.npz", optimizer)

    resumed, loaded = make()
    edgeddl.accelerate(resumed)
    chainer.serializers.load_npz(tmp_path / "model.npz", resumed)
    chainer.serializers.load_npz(tmp_path / "optimizer.npz", loaded)
    train_in_chainers_loop(resumed, loaded)
    assert_ordered(resumed)

    late, its_optimizer = make()
    train_in_chainers_loop(late, its_optimizer)
    momentum = [p.update_rule.state["m"].copy() for _, p in sorted(late.namedparams())]
    edgeddl.accelerate(late)
    for (_, p), before in zip(sorted(late.namedparams()), momentum, strict=True):
        np.testing.assert_array_equal(p.update_rule.state["m"], before)
    assert_ordered(late)
    train_in_chainers_loop(late, its_optimizer)
    assert_ordered(late)

    lazy = edgeddl.accelerate(Classifier())  # the stem has no shape before its first image
    lazy(*batch())
    lazy.zerograds()
    assert in_kernel_order(lazy.predictor.stem.W.grad)


def test_links_made_for_cudnn_fall_back_to_chainer_and_ours_ignore_it() -> None:
    with chainer.using_config("compute_mode", "cudnn_fast"):
        stock, ours = L.Convolution2D(3, 4, 3), links.Convolution2D(3, 4, 3)
    with pytest.warns(UserWarning, match="cudnn_fast.* falls back to Chainer"):
        model = edgeddl.accelerate(chainer.Sequential(stock))
    assert type(model[0]) is L.Convolution2D
    assert ours(batch()[0]).shape == (6, 4, 6, 6)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), lambda model: model.copy()],
    ids=["deepcopy", "pickle", "copy"],
)
def test_copies_are_accelerated_too(duplicate: Any, calls: Counter[str]) -> None:
    model = edgeddl.accelerate(seeded(Classifier))
    twin = duplicate(model)
    assert isinstance(twin, Classifier) and twin.predictor is not model.predictor
    calls.clear()
    assert twin(*batch()).array == model(*batch()).array
    assert calls["relu_forward"] == 4 and calls["softmax_cross_entropy"] == 2
    twin.predictor.forward = lambda x: F.relu(np.zeros((6, 5), np.float32))
    assert float(twin(*batch()).array) == pytest.approx(np.log(5))
    assert calls["relu_forward"] == 5


def test_functions_can_be_pickled_after_the_redirection() -> None:
    edgeddl.accelerate(chainer.Sequential(F.relu))
    assert pickle.loads(pickle.dumps(F.relu)) is F.relu


def test_edgeddl_itself_imports_neither_numpy_nor_chainer() -> None:
    code = "import sys, edgeddl; print({'numpy', 'chainer'} & set(sys.modules), edgeddl.accelerate)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.startswith("set() <function accelerate")
    with pytest.raises(AttributeError, match="no attribute 'accelerated'"):
        edgeddl.accelerated  # noqa: B018
