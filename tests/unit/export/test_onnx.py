"""Exported ONNX models compute what the Chainer models compute."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from edgeddl import accelerate, functions
from edgeddl.chainer_compat import F, L, chainer
from edgeddl.data import normalise
from edgeddl.errors import ConfigError
from edgeddl.export.tracing import trace
from edgeddl.models import build_model
from tests.models import make_sequential
from tests.unit.export.support import (
    IMAGES,
    largest_difference,
    make_trained,
    run_model,
    run_onnx,
)

onnx = pytest.importorskip("onnx", reason="onnx: pip install 'edgeddl[export]'")

from edgeddl.export.onnx_file import render_onnx  # noqa: E402


class UserNet(chainer.Chain):  # type: ignore[misc]
    """Stock links, and every supported function with unusual arguments."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(None, 8, 3, stride=(2, 1), pad=(1, 0))
            self.bn = L.BatchNormalization(8, use_beta=False, eps=1e-3)
            self.grouped = L.Convolution2D(8, 12, 3, pad=2, dilate=2, groups=4)
            self.depthwise = L.DepthwiseConvolution2D(12, 2, 3, nobias=True)
            self.bn2 = L.BatchNormalization(24, use_gamma=False)
            self.hidden = L.Linear(None, 20)
            self.bn3 = L.BatchNormalization(20)
            self.head = L.Linear(20, classes, nobias=True)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.bn(self.conv(x)))
        h = F.leaky_relu(self.grouped(F.max_pooling_2d(h, 3, stride=2)), 0.1)
        h = self.bn2(self.depthwise(h))
        h = F.concat((F.average_pooling_2d(h, 3, 2, 1), F.max_pooling_2d(h, 2)), axis=1)
        h = F.dropout(F.tanh(h) * 2 + 0.5 - F.sigmoid(h))
        h = F.clipped_relu(h + h * h - F.mean(h, axis=(2, 3), keepdims=True), 6.0)
        h = F.transpose(F.reshape(h, (len(h), 48, -1)), (0, 2, 1))
        h = F.add(h, h, h) + F.expand_dims(F.sum(h, axis=1), 1) * 0.01
        return self.head(F.relu(self.bn3(self.hidden(h))))


MODELS = {
    "resnet18": lambda: make_trained(build_model("resnet18", stem="cifar")),
    "resnet18 imagenet": lambda: make_trained(
        build_model("resnet18", stem="imagenet", classes=7), (3, 64, 48), 7
    ),
    "resnet9": lambda: make_trained(build_model("resnet9")),
    "stock links": lambda: make_trained(UserNet()),
    "accelerated": lambda: make_trained(accelerate(UserNet())),
    "grey": lambda: make_trained(UserNet(4), (1, 28, 44), 4),
    "sequential": lambda: make_trained(make_sequential()),
}


@pytest.fixture(scope="module", params=MODELS)
def trained(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("count", [1, 5])
def test_outputs_equal_edgeddls(trained: Any, fold: bool, count: int) -> None:
    images = np.random.default_rng(3).standard_normal((count, *trained.image_shape), np.float32)
    found = run_onnx(render_onnx(trained, fold=fold), images)
    assert largest_difference(found, run_model(trained.model, images)) < 1e-5


def test_the_export_leaves_the_model_unchanged(trained: Any) -> None:
    before = {name: p.array.copy() for name, p in trained.model.namedparams()}
    render_onnx(trained, fold=True)
    assert all((p.array == before[name]).all() for name, p in trained.model.namedparams())


@pytest.mark.parametrize("name", ["resnet18", "resnet9"])
def test_folding_removes_every_normalisation_of_the_built_in_models(name: str) -> None:
    content = render_onnx(make_trained(build_model(name)), fold=True)
    operators = {node.op_type for node in onnx.load_from_string(content).graph.node}
    assert "Conv" in operators and "BatchNormalization" not in operators


def test_a_normalisation_whose_input_is_used_again_is_not_folded() -> None:
    class Net(chainer.Chain):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.conv = L.Convolution2D(3, 10, 3)
                self.bn = L.BatchNormalization(10)

        def forward(self, x: Any) -> Any:
            h = self.conv(x)
            return functions.global_average_pooling_2d(functions.relu(self.bn(h)) + h)

    trained = make_trained(Net())
    content = render_onnx(trained, fold=True)
    images = normalise(IMAGES, trained.mean, trained.std)
    assert largest_difference(run_onnx(content, images), run_model(trained.model, images)) < 1e-5
    assert b"BatchNormalization" in content


@pytest.mark.parametrize("kind", ["uint8", "float"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_normalisation_in_the_graph(kind: str, channels: int) -> None:
    trained = make_trained(UserNet(), (channels, 24, 40))
    pixels = np.random.default_rng(1).integers(0, 256, (5, 24, 40, channels), np.uint8)
    expected = run_model(trained.model, normalise(pixels, trained.mean, trained.std))
    fractions = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2) / np.float32(255))
    content = render_onnx(trained, normalisation=kind, fold=True)
    found = run_onnx(content, pixels if kind == "uint8" else fractions)
    assert largest_difference(found, expected) < 1e-5


def test_softmax_gives_probabilities() -> None:
    trained = make_trained(build_model("resnet9"))
    images = normalise(IMAGES, trained.mean, trained.std)
    content = render_onnx(trained, softmax=True)
    expected = F.softmax(run_model(trained.model, images)).array
    np.testing.assert_allclose(run_onnx(content, images), expected, atol=1e-5)
    assert [output.name for output in onnx.load_from_string(content).graph.output] == [
        "probabilities"
    ]


def test_the_file_describes_the_model() -> None:
    trained = make_trained(build_model("resnet9"))
    model = onnx.load_from_string(render_onnx(trained))
    onnx.checker.check_model(model, full_check=True)
    facts = {fact.key: fact.value for fact in model.metadata_props}
    assert json.loads(facts["classes"]) == list(trained.classes)
    assert json.loads(facts["image_shape"]) == [3, 32, 32]
    np.testing.assert_array_equal(np.float32(json.loads(facts["mean"])), trained.mean)
    np.testing.assert_array_equal(np.float32(json.loads(facts["std"])), trained.std)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0]
    assert batch.dim_param == "batch" and not batch.dim_value
    names = {constant.name for constant in model.graph.initializer}
    assert {"stem/convolution/W", "stem/normalization/avg_var", "head/W"} <= names


def test_all_unsupported_functions_are_named_at_once() -> None:
    def model(x: Any) -> Any:
        return F.cos(F.sum(F.flip(F.relu(x), 2), axis=(2, 3)))

    with pytest.raises(ConfigError, match=r"of the model: Flip, Cos\n.*hint: replace"):
        trace(_chain(model), (3, 8, 8))


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (lambda x: F.relu(x.array), "does not depend on its input"),
        (lambda x: F.relu(x) + x.array * 2, "different graphs"),
        (lambda x: x * float(len(x)), "different graphs"),
        (lambda x: F.reshape(x, (-1,)), "Reshape of the batch axis"),
        (lambda x: F.concat((x, x), axis=0), "Concat over the batch axis"),
        (lambda x: F.split_axis(x, 3, axis=1)[1], "SplitAxis"),
        (lambda x: F.max_pooling_2d(x, 1, stride=3, cover_all=True), "windows outside"),
        (
            lambda x: F.batch_normalization(x, np.ones(3, "f"), np.zeros(3, "f")),
            "BatchNormalization with the statistics of the batch",
        ),
    ],
)
def test_what_cannot_be_exported_is_refused(model: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        trace(_chain(model), (3, 8, 8))


def _chain(function: Any) -> Any:
    return chainer.Sequential(function)
