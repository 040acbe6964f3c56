"""Parameters of which a model has called disable_update() stay as they are, and are not sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.chainer_compat import chainer
from edgeddl.comm.local import SingleCommunicator
from edgeddl.errors import ConfigError
from edgeddl.training.startup import prepare_run
from tests.models import FrozenNet
from tests.unit.training.test_equivalence import NORMALISED, latest_arrays
from tests.unit.training.test_ranks_together import config
from tests.unit.training.training_runs import train

FROZEN = "tests.models:FrozenNet"
HEAD = {"head/W", "head/b"}


def names_of(arrays: dict[str, np.ndarray], prefix: str) -> set[str]:
    return {name.removeprefix(prefix) for name in arrays if name.startswith(prefix)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"communicator": "naive"},
        {"compression": "fp16"},
        {"compression": "powersgd"},
        {"local_steps": 2},
        {"accumulation": 2},
    ],
    ids=str,
)
def test_only_what_is_not_frozen_is_trained(tmp_path: Path, options: dict[str, Any]) -> None:
    """On three ranks: a mean of equal numbers over three is not always that number."""
    train(tmp_path, 3, model=FROZEN, weight_decay=0.1, max_steps=4, **options)
    start, end = FrozenNet(), latest_arrays(tmp_path)
    for name, parameter in start.namedparams():
        name = name.lstrip("/")
        value, velocity = end[f"parameters/{name}"], end[f"velocity/{name}"]
        is_same = np.array_equal(value, parameter.array)
        assert is_same == (name not in HEAD), name
        assert velocity.any() == (name in HEAD), name
    assert names_of(end, "velocity/") == {name[1:] for name, _ in start.namedparams()}
    assert not np.array_equal(end["statistics/bn/avg_mean"], start.bn.avg_mean)


def test_frozen_parameters_are_not_sent(tmp_path: Path) -> None:
    frozen, whole = (
        train(tmp_path / name.split(":")[1], 2, model=name, max_steps=3)
        for name in (FROZEN, NORMALISED)
    )
    of_head = 8 * 10 + 16  # with the padding of 10 biases to 16 numbers
    sent, in_all = (summary["ranks"][1]["bytes_sent"] for summary in (frozen, whole))
    assert sent == 3 * 4 * of_head < in_all


def test_the_others_train_as_they_would_without(tmp_path: Path) -> None:
    """The first step of a head is the same, whatever is frozen below it."""
    for name in (FROZEN, NORMALISED):
        train(tmp_path / name.split(":")[1], 2, model=name, max_steps=1)
    one, other = (latest_arrays(tmp_path / name) for name in ("FrozenNet", "TinyNormalisedNet"))
    for name in HEAD:
        assert one[f"parameters/{name}"].tobytes() == other[f"parameters/{name}"].tobytes()


@pytest.mark.parametrize("name", ["FrozenNet", "HalfFrozenNet"])
def test_a_resumed_run_is_the_same(tmp_path: Path, name: str) -> None:
    options = {"model": f"tests.models:{name}", "epochs": 2}
    straight = train(tmp_path / "straight", 2, **options)
    train(tmp_path / "resumed", 2, **options, max_steps=3)
    resumed = train(tmp_path / "resumed", 2, **options, resume="auto")
    naive = train(tmp_path / "naive", 2, **options, communicator="naive")
    assert straight["step_losses"] == resumed["step_losses"] == naive["step_losses"]
    one, other = latest_arrays(tmp_path / "straight"), latest_arrays(tmp_path / "resumed")
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_gradients_of_frozen_parameters_are_not_computed(tmp_path: Path) -> None:
    run = prepare_run(config(tmp_path, model=FROZEN), SingleCommunicator())
    h = run.model.conv(np.zeros((2, 3, 32, 32), np.float32))
    assert not h.requires_grad and run.model.head.W.requires_grad
    assert {slot.spec.name for slot in run.arena.plan.slots} == HEAD


def test_a_model_without_anything_to_train_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="all parameters of the model are frozen"):
        train(tmp_path, model="tests.models:FullyFrozenNet")


def test_chainers_optimizers_are_as_before() -> None:
    """setup() gives all parameters new rules, as ever; without it update() does nothing."""
    model = FrozenNet()
    before = model.conv.W.array.copy()
    model.conv.enable_update()
    model.conv.W.grad = np.ones_like(before)
    model.conv.W.update()
    np.testing.assert_array_equal(model.conv.W.array, before)
    model.disable_update()
    assert not model.update_enabled
    chainer.optimizers.SGD().setup(model)
    assert model.update_enabled
