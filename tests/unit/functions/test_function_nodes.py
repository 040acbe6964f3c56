"""What edgeddl's functions add to Chainer's: gradient sink, memory order, fallbacks, errors."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from edgeddl import functions, kernels
from edgeddl.chainer_compat import F, chainer
from edgeddl.errors import KernelError
from edgeddl.functions import node
from edgeddl.functions.gradient_sink import collecting
from edgeddl.kernels.layout import channels_last, conversions, kernel_order
from edgeddl.links import BatchNormalization, Convolution2D, ConvolutionBN, Linear
from edgeddl.models.resnet9 import Residual
from edgeddl.models.resnet18 import BasicBlock
from tests.models import TinyNet


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


class RecordingSink:
    """Gives each known parameter a view of one flat array, and records events in order."""

    def __init__(self, model: chainer.Link, events: list[str] | None = None) -> None:
        self.names = {id(p): name for name, p in model.namedparams()}
        self.events: list[str] = [] if events is None else events
        self.flat = np.full(model.count_params(), np.nan, np.float32)
        self.views, start = {}, 0
        for name, parameter in model.namedparams():
            part = self.flat[start : start + parameter.size]
            self.views[name] = _view(part, parameter.shape)
            start += parameter.size

    def view_for(self, parameter: Any) -> np.ndarray | None:
        return self.views.get(self.names.get(id(parameter), ""))

    def ready(self, parameter: Any) -> None:
        name = self.names[id(parameter)]
        assert not np.isnan(self.views[name]).any()
        self.events.append(f"ready {name}")


def _view(part: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) != 4:
        return part.reshape(shape)
    k, c, kh, kw = shape
    return part.reshape(kh, kw, c, k).transpose(3, 2, 0, 1)


def backward(model: Any, x: np.ndarray, sink: RecordingSink | None) -> None:
    model.cleargrads()
    y = model(x)
    y.grad = random(*y.shape)
    if sink is None:
        y.backward()
        return
    with collecting(sink):
        y.backward()


MODELS = {
    "tiny": (TinyNet, (2, 3, 8, 8)),
    "convolution": (lambda: Convolution2D(3, 5, 3, rng=np.random.default_rng(0)), (2, 3, 8, 8)),
    "linear": (lambda: Linear(6, 4, rng=np.random.default_rng(0)), (3, 6)),
    "normalization": (lambda: BatchNormalization(3), (2, 3, 8, 8)),
    "residual": (lambda: Residual(4, np.random.default_rng(0)), (2, 4, 6, 6)),
    "block": (lambda: BasicBlock(4, 6, 2, np.random.default_rng(0)), (2, 4, 6, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_written_to_the_views_of_the_sink(name: str) -> None:
    make, shape = MODELS[name]
    model, x = make(), random(*shape)
    backward(model, x, None)
    expected = {path: parameter.grad.copy() for path, parameter in model.namedparams()}
    sink = RecordingSink(model)
    backward(model, x, sink)
    assert sorted(sink.events) == sorted(f"ready {path}" for path in expected)
    for path, parameter in model.namedparams():
        assert parameter.grad is sink.views[path]
        np.testing.assert_array_equal(parameter.grad, expected[path])


def test_parameter_gradients_are_ready_before_the_input_gradient(monkeypatch) -> None:
    events: list[str] = []
    for kernel in (
        "convolution_input_gradient",
        "batch_normalization_backward",
        "linear_input_gradient",
    ):
        compute = getattr(kernels, kernel)
        monkeypatch.setattr(
            kernels,
            kernel,
            lambda *args, name=kernel, compute=compute, **options: (
                events.append(name),
                compute(*args, **options),
            )[1],
        )

    class Net(chainer.Chain):
        def __init__(self) -> None:
            super().__init__()
            rng = np.random.default_rng(0)
            with self.init_scope():
                self.one = ConvolutionBN(3, 4, 3, rng=rng)
                self.two = Convolution2D(4, 4, 3, rng=rng)
                self.head = Linear(4, 2, rng=rng)

        def forward(self, x: Any) -> Any:
            return self.head(functions.global_average_pooling_2d(self.two(self.one(x))))

    model = Net()
    backward(model, random(2, 3, 8, 8), RecordingSink(model, events))
    assert events == [
        "ready /head/W",
        "ready /head/b",
        "linear_input_gradient",
        "ready /two/W",
        "ready /two/b",
        "convolution_input_gradient",
        "batch_normalization_backward",  # all of its gradients at once
        "ready /one/normalization/gamma",
        "ready /one/normalization/beta",
        "ready /one/convolution/W",  # the image needs no gradient: none is computed
    ]


class CallRecorder(chainer.LinkHook):
    """Records which links are called."""

    name = "CallRecorder"

    def __init__(self) -> None:
        self.called: list[str] = []

    def forward_preprocess(self, args: Any) -> None:
        self.called.append(type(args.link).__name__)


def test_link_hooks_are_called() -> None:
    model, x = BasicBlock(4, 6, 2, np.random.default_rng(0)), random(2, 4, 6, 6)
    with CallRecorder() as everywhere:
        model(x)
    assert (
        everywhere.called.count("ConvolutionBN") == 2
    )  # for the first, only its convolution is called
    assert everywhere.called.count("Convolution2D") == 3
    hook = CallRecorder()
    model.second.add_hook(hook)
    model(x)
    assert hook.called == ["ConvolutionBN"]


def test_gradients_become_ready_in_the_same_order_every_time() -> None:
    orders = []
    for _ in range(3):
        model = Residual(4, np.random.default_rng(0))
        sink = RecordingSink(model)
        backward(model, random(2, 4, 6, 6), sink)
        orders.append(sink.events)
    assert orders[0] == orders[1] == orders[2]


def test_a_parameter_unknown_to_the_sink_has_its_own_gradient() -> None:
    model, other = TinyNet(), TinyNet(seed=1)
    sink = RecordingSink(other)
    backward(model, random(2, 3, 8, 8), sink)
    assert sink.events == [] and np.isnan(sink.flat).all()
    assert all(p.grad is not None and np.isfinite(p.grad).all() for p in model.params())


def test_gradients_that_are_not_required_are_not_computed(monkeypatch) -> None:
    def fail(*arguments: Any) -> None:
        raise AssertionError("this gradient is not required")

    monkeypatch.setattr(kernels, "convolution_weight_gradient", fail)
    monkeypatch.setattr(kernels, "channel_sums", fail)
    x = chainer.Variable(random(2, 3, 6, 6))
    F.sum(functions.convolution_2d(x, random(4, 3, 3, 3), random(4))).backward()
    assert x.grad.shape == x.shape


def test_memory_order_is_kept_through_a_training_step() -> None:
    """Every array is already in the kernels' order, so nothing is converted."""
    model = Residual(4, np.random.default_rng(0))
    x = chainer.Variable(channels_last(random(2, 4, 6, 6)))
    before = conversions()
    h = functions.max_pooling_2d(model(x), 2)
    y = functions.global_average_pooling_2d(h)
    y.grad = random(*y.shape)
    y.backward()
    assert conversions() == before
    assert x.grad.transpose(0, 2, 3, 1).flags.c_contiguous


def test_inputs_in_kernel_order_are_not_modified() -> None:
    x, W = channels_last(random(2, 3, 6, 6)), kernel_order(random(4, 3, 3, 3))
    copies = x.copy(), W.copy()
    variable = chainer.Variable(x)
    h = functions.relu(functions.convolution_2d(variable, W, pad=1))
    y = functions.max_pooling_2d(h, 2)
    y.grad = gy = random(*y.shape)
    kept = gy.copy()
    y.backward()
    for array, copy in zip((x, W, gy), (*copies, kept), strict=True):
        np.testing.assert_array_equal(array, copy)


def test_double_backprop_is_rejected() -> None:
    x = chainer.Variable(random(2, 3, 6, 6))
    y = F.sum(functions.convolution_2d(x, random(4, 3, 3, 3)))
    with pytest.raises(NotImplementedError, match="Convolution2D of edgeddl has no second"):
        y.backward(enable_double_backprop=True)


X, W4 = random(2, 4, 6, 6), random(4, 4, 3, 3)
VECTOR = np.ones(4, np.float32)
T = np.arange(6, dtype=np.int32)


def unaligned(array: np.ndarray) -> np.ndarray:
    """An equal array at an address that is not a multiple of its item size."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    copy = np.frombuffer(memory[1:], array.dtype).reshape(array.shape)
    copy[...] = array
    assert not copy.flags.aligned
    return copy


def refusal_of(function: Any, *arguments: Any, **options: Any) -> Any:
    with pytest.raises(RuntimeError) as raised:
        function(*arguments, **options)
    return chainer.Variable(np.array(str(raised.value)))


def from_layout(function: Any) -> Any:
    x = chainer.Variable(X).as_layout(chainer.memory_layouts.CUDNN_CHANNEL_LAST_X)
    return function(x).as_layout(None)


FALLBACKS = {
    "cover_all": (
        lambda: functions.convolution_2d(X, W4, stride=2, cover_all=True),
        lambda: F.convolution_2d(X, W4, stride=2, cover_all=True),
    ),
    "float64": (
        lambda: functions.convolution_2d(X.astype("f8"), W4.astype("f8")),
        lambda: F.convolution_2d(X.astype("f8"), W4.astype("f8")),
    ),
    "axis": (
        lambda: functions.batch_normalization(X, X[0, 0], X[0, 0], axis=(0, 1)),
        lambda: F.batch_normalization(X, X[0, 0], X[0, 0], axis=(0, 1)),
    ),
    "gradients of mean": (
        lambda: functions.fixed_batch_normalization(
            X, VECTOR, VECTOR, chainer.Variable(VECTOR), VECTOR
        ),
        lambda: F.fixed_batch_normalization(X, VECTOR, VECTOR, VECTOR, VECTOR),
    ),
    "3-dimensional": (lambda: functions.relu(X[0]), lambda: F.relu(X[0])),
    "float16": (
        lambda: functions.linear(X[0, 0].astype("f2"), X[0, 1].astype("f2")),
        lambda: F.linear(X[0, 0].astype("f2"), X[0, 1].astype("f2")),
    ),
    "class_weight": (
        lambda: functions.softmax_cross_entropy(X[0, 0], T, class_weight=X[0, 1, 0]),
        lambda: F.softmax_cross_entropy(X[0, 0], T, class_weight=X[0, 1, 0]),
    ),
    "reduce='no'": (
        lambda: functions.softmax_cross_entropy(X[0, 0], T, reduce="no"),
        lambda: F.softmax_cross_entropy(X[0, 0], T, reduce="no"),
    ),
    "cudnn_fast": (  # needs a GPU: Chainer raises an error
        lambda: refusal_of(functions.convolution_2d, X, W4, cudnn_fast=True),
        lambda: refusal_of(F.convolution_2d, X, W4, cudnn_fast=True),
    ),
    "aligned": (
        lambda: functions.convolution_2d(unaligned(X), W4),
        lambda: F.convolution_2d(X, W4),
    ),
    "memory layout": (lambda: from_layout(functions.relu), lambda: from_layout(F.relu)),
    "different shapes": (lambda: functions.add(X, X[:1]), lambda: F.add(X, X[:1])),
    "return_indices": (
        lambda: functions.max_pooling_2d(X, 2, return_indices=True)[0],
        lambda: F.max_pooling_2d(X, 2),
    ),
}


@pytest.mark.parametrize("reason", FALLBACKS)
def test_unsupported_calls_fall_back_to_chainer_with_one_warning(reason: str, monkeypatch) -> None:
    monkeypatch.setattr(node, "_warned", set())
    ours, chainers = FALLBACKS[reason]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        results = [ours(), ours()]
    assert len(seen) == 1 and "falls back to Chainer" in str(seen[0].message)
    if reason != "axis":
        assert reason in str(seen[0].message)
    for result in results:
        np.testing.assert_array_equal(result.array, chainers().array)
        assert result.dtype == chainers().dtype


def test_selecting_chainers_functions_gives_no_warning(monkeypatch) -> None:
    monkeypatch.setattr(node, "CHAINER_REQUESTED", True)
    monkeypatch.setattr(node, "_warned", set())

    def fail(*arguments: Any) -> None:
        raise AssertionError("Chainer's functions are selected")

    for name in ("convolution_forward", "batch_normalization_forward", "softmax_cross_entropy"):
        monkeypatch.setattr(kernels, name, fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        h = functions.convolution_2d(X, W4, stride=2, cover_all=True)
        h = functions.batch_normalization_add_relu(h, h, VECTOR, VECTOR)
        logits = functions.global_average_pooling_2d(h)
        loss = functions.smoothed_softmax_cross_entropy(logits, T[:2], 0.1)
    expected = F.batch_normalization(
        F.convolution_2d(X, W4, stride=2, cover_all=True), VECTOR, VECTOR
    )
    residual = F.convolution_2d(X, W4, stride=2, cover_all=True)
    np.testing.assert_array_equal(h.array, F.relu(expected + residual).array)
    assert loss.shape == ()


def is_kept(make: Any, use: Any) -> bool:
    """Whether the array of make() stays alive if only the result of use(...) is held."""
    variable = make()
    array = weakref.ref(variable.array)
    result = use(variable)
    del variable
    gc.collect()
    assert result is not None
    return array() is not None


def test_backward_keeps_only_what_it_needs() -> None:
    """Arrays that neither the fused function nor the addition needs are freed."""
    ones = chainer.Parameter(VECTOR)

    def image() -> Any:
        return functions.add(chainer.Variable(X), X)

    def normalised_relu() -> Any:
        return functions.batch_normalization_relu(image(), ones, ones)

    def added_relu() -> Any:
        return functions.batch_normalization_add_relu(image(), X, ones, ones)

    assert not is_kept(image, lambda x: functions.add(x, X))
    assert is_kept(image, lambda x: functions.batch_normalization_relu(x, ones, ones))
    assert not is_kept(normalised_relu, lambda y: functions.add(y, X))
    assert not is_kept(added_relu, lambda y: functions.add(y, X))
    assert is_kept(
        image, lambda residual: functions.batch_normalization_add_relu(X, residual, ones, ones)
    )
    assert not is_kept(
        normalised_relu,
        lambda residual: functions.batch_normalization_add_relu(X, residual, ones, ones),
    )


def test_unaligned_labels_and_gradients_are_accepted() -> None:
    x, gradient = chainer.Variable(X), unaligned(np.ones_like(X))
    y = functions.relu(x)
    y.grad = gradient
    y.backward()
    np.testing.assert_array_equal(x.grad, X > 0)
    loss = functions.softmax_cross_entropy(X[0, 0], unaligned(T))
    np.testing.assert_array_equal(loss.array, functions.softmax_cross_entropy(X[0, 0], T).array)


@pytest.mark.parametrize("cache_score", [True, False])
def test_the_loss_keeps_its_probabilities_with_cache_score(cache_score: bool) -> None:
    labels = np.array([0, -1, 2, 3, 4, 5], np.int32)
    x = chainer.Variable(X[0, 0])
    found, expected = (
        module.softmax_cross_entropy(x, labels, cache_score=cache_score).creator.y
        for module in (functions, F)
    )
    if cache_score:
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    else:
        assert found is None and expected is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: functions.convolution_2d(X, W4[:, 1:]),
        lambda: functions.convolution_2d(X, W4[0]),
        lambda: functions.convolution_2d(X, W4, VECTOR[1:]),
        lambda: functions.convolution_2d(X, W4, groups=3),
        lambda: functions.linear(X, X[0, 0]),
        lambda: functions.batch_normalization(X, VECTOR[1:], VECTOR[1:]),
        lambda: functions.average_pooling_2d(X, 99),
        lambda: functions.softmax_cross_entropy(X[0, 0], T[1:]),
    ],
)
def test_wrong_shapes_raise_a_value_error(call: Any) -> None:
    """NumPy and Chainer raise one, and programs rely on it."""
    with pytest.raises(ValueError, match=r".") as raised:
        call()
    assert isinstance(raised.value, KernelError)


def test_wrong_labels_are_named() -> None:
    with pytest.raises(KernelError, match=r"t must be below 6 or -1 .* t\[2\] is 7"):
        functions.softmax_cross_entropy(X[0, 0], np.array([0, -1, 7, 0, 0, 0]))


def test_a_single_number_cannot_be_normalised() -> None:
    with pytest.warns(UserWarning, match="one number per channel"):
        functions.batch_normalization(X[:1, :, :1, :1], VECTOR, VECTOR)
