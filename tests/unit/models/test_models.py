"""Models: their size, their seeds, and how they are found."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl.chainer_compat import F, chainer
from edgeddl.errors import ConfigError
from edgeddl.functions.gradient_sink import collecting
from edgeddl.functions.read_barrier import read_barrier
from edgeddl.kernels.layout import channels_last, conversions
from edgeddl.models import build_model, count_macs
from edgeddl.registry import MODELS
from tests.models import TinyNet


@pytest.mark.parametrize(
    ("name", "stem", "classes", "parameters", "tensors"),
    [
        ("resnet18", "cifar", 10, 11_173_962, 62),
        ("resnet18", "cifar", 100, 11_173_962 + 90 * 513, 62),
        ("resnet18", "imagenet", 10, 11_173_962 + (49 - 9) * 3 * 64, 62),
        ("resnet9", "cifar", 10, 1_646_112, 25),
    ],
)
def test_parameter_count(name: str, stem: str, classes: int, parameters: int, tensors: int) -> None:
    model = build_model(name, stem=stem, classes=classes)
    assert (model.count_params(), len(list(model.params()))) == (parameters, tensors)


@pytest.mark.parametrize(
    ("name", "stem", "macs"),
    [
        ("resnet18", "cifar", 555_422_720),
        ("resnet18", "imagenet", 37_016_576),
        ("resnet9", "cifar", 95_259_136),
    ],
)
def test_work(name: str, stem: str, macs: int) -> None:
    assert count_macs(build_model(name, stem=stem)) == macs


def test_work_of_a_known_network() -> None:
    """16 and 28 maps of 8 x 8 and 4 x 4 pixels, then 28 x 10."""
    expected = 64 * 16 * 27 + 16 * 28 * 16 * 9 + 28 * 10
    assert count_macs(TinyNet(), (3, 8, 8)) == expected


def test_tiny_net_has_about_5k_parameters() -> None:
    assert TinyNet().count_params() == 4_798


@pytest.mark.parametrize("name", MODELS)
def test_equal_seeds_give_equal_models(name: str) -> None:
    state = np.random.get_state()[1].copy()
    np.random.seed(1)
    first = build_model(name, seed=3)
    np.random.seed(2)
    same, other = build_model(name, seed=3), build_model(name, seed=4)
    for one, two in zip(first.params(), same.params(), strict=True):
        np.testing.assert_array_equal(one.array, two.array)
    assert not np.array_equal(first.stem.convolution.W.array, other.stem.convolution.W.array)
    np.random.set_state(("MT19937", state, 624))


@pytest.mark.parametrize(
    ("name", "stem"), [*((name, "cifar") for name in MODELS), ("resnet18", "imagenet")]
)
def test_a_step_lowers_the_loss(name: str, stem: str) -> None:
    model = build_model(name, stem=stem, classes=7)
    optimizer = chainer.optimizers.SGD(lr=0.02).setup(model)
    draw = np.random.default_rng(0)
    x = channels_last(draw.standard_normal((4, 3, 32, 32), np.float32))
    t = np.array([0, 6, 3, 3], np.int32)
    losses = []
    before = conversions()
    for _ in range(2):
        logits = model(x)
        assert logits.shape == (4, 7) and logits.dtype == np.float32
        loss = F.softmax_cross_entropy(logits, t)
        model.cleargrads()
        loss.backward()
        losses.append(float(loss.array))
        if len(losses) == 1:
            assert conversions() == before, "an array was not channels last"
        optimizer.update()
    assert losses[1] < losses[0] < 2 * np.log(7)
    assert all(p.grad.dtype == np.float32 for p in model.params())


def test_last_stage_is_ready_first() -> None:
    """Three quarters of the bytes can be sent while three quarters of backward are still to do."""
    model = build_model("resnet18")
    sizes = {id(p): p.size for p in model.params()}

    class Order:
        def __init__(self) -> None:
            self.sizes: list[int] = []

        def view_for(self, parameter: object) -> None:
            self.sizes.append(sizes[id(parameter)])

        def ready(self, parameter: object) -> None:
            raise AssertionError("no view was given")

    order = Order()
    with collecting(order):
        F.sum(model(np.zeros((2, 3, 32, 32), np.float32))).backward()
    assert len(order.sizes) == 62
    assert sum(order.sizes[:17]) > 0.75 * model.count_params()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet81"}, r"one of resnet18, resnet9, not 'resnet81'"),
        ({"name": "resnet81"}, r"hint: did you mean resnet18\?"),
        ({"name": "alexnet"}, r'hint: use "package.module:callable" for your own model'),
        ({"name": "resnet9", "stem": "imagenet"}, "resnet9 has only the stem cifar"),
        ({"name": "resnet18", "stem": "large"}, "stems cifar and imagenet, not 'large'"),
        ({"name": "no_such_module:Net"}, "there is no module 'no_such_module'"),
        ({"name": "own_models:Missing"}, "'Missing' in module own_models does not exist"),
        ({"name": "own_models:NUMBER"}, "'NUMBER' in module own_models is not callable"),
        (
            {"name": "own_models:make_list"},
            "make_list: returned list, not a chainer.Chain",
        ),
        ({"name": "own_models:"}, 'must be "package.module:callable", not'),
        ({"name": ":Net"}, 'must be "package.module:callable", not'),
        ({"name": "own_broken:Net"}, "there is no module 'surely_absent'"),
        ({"name": "own_models:no_arguments"}, "no_arguments: cannot be called with classes=10"),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_wrong_names_are_explained(tmp_path, monkeypatch, arguments, message) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_models.py").write_text(
        "NUMBER = 1\ndef make_list(classes): return []\ndef no_arguments(): return None\n"
    )
    (tmp_path / "own_broken.py").write_text("import surely_absent\n")
    with pytest.raises(ConfigError, match=message):
        build_model(**arguments)


def test_own_model() -> None:
    model = build_model("tests.models:TinyNet", classes=5)
    assert isinstance(model, TinyNet)
    assert model(np.zeros((1, 3, 8, 8), np.float32)).shape == (1, 5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("train", [True, False])
def test_functions_call_the_read_barrier_with_every_parameter(name: str, train: bool) -> None:
    model = build_model(name)
    passed: set[int] = set()
    barrier = read_barrier(lambda inputs: passed.update(map(id, inputs)))
    with barrier, chainer.using_config("train", train):
        model(np.zeros((2, 3, 32, 32), np.float32))
    assert {id(parameter) for parameter in model.params()} <= passed
