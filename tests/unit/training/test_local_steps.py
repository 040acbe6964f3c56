"""Local steps: the mean of ranks that train alone, and where a run may pause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.chainer_compat import F, chainer
from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ParameterSpec, plan_buckets
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.comm.local_steps import LocalSteps, OwnGradients, steps_to_round_end
from edgeddl.comm.make_exchange import check_exchange_options, make_exchange
from edgeddl.comm.naive import NaiveExchange
from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError, EdgeddlError
from edgeddl.training import startup
from edgeddl.training.banner import render_banner
from edgeddl.training.checkpoint import CheckpointStore, find_checkpoints
from edgeddl.training.extensions.checkpointing import Checkpointing
from edgeddl.training.parameters import named_parameters
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.runner import run_training
from edgeddl.training.startup import prepare_run
from edgeddl.training.stop import StopRequest
from tests.support import FakeStep
from tests.unit.training.test_equivalence import NORMALISED, assert_same_losses, latest_arrays
from tests.unit.training.training_runs import OPTIONS, train


def config(run_dir: Path, **options: Any) -> TrainConfig:
    return TrainConfig(**OPTIONS | {"run_dir": run_dir} | options)


@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (2, {}),
        (3, {"nesterov": True, "accumulation": 2}),
        (5, {"limit_train": 43}),  # the last step is uneven
        (5, {"limit_train": 3}),  # two ranks have no images
    ],
)
def test_rounds_of_one_step_are_ordinary_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, options: dict[str, Any]
) -> None:
    options = {"model": "tests.models:SmoothNet", **options}
    ordinary = train(tmp_path / "ordinary", ranks, **options)

    def rounds_of_one(config: TrainConfig, *arguments: Any, **_: Any) -> LocalSteps:
        local = make_exchange(replace(config, local_steps=2), *arguments)
        assert isinstance(local, LocalSteps)
        local.round_steps = 1
        return local

    monkeypatch.setattr(startup, "make_exchange", rounds_of_one)
    local = train(tmp_path / "local", ranks, **options)
    assert_same_losses(local, ordinary)
    one, other = latest_arrays(tmp_path / "ordinary"), latest_arrays(tmp_path / "local")
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-5, atol=1e-6, err_msg=name)


def train_alone(run: PreparedRun, steps: int) -> tuple[dict[str, np.ndarray], int]:
    """Plain momentum SGD by Chainer's own backward, and on how many images."""
    parameters = named_parameters(run.model)
    velocity = {name: np.zeros_like(p.array) for name, p in parameters.items()}
    images = 0
    with run.make_loader() as loader, chainer.using_config("train", True):
        for _, batch in zip(range(steps), loader.steps(0), strict=False):
            for x, t in batch.micro_batches:
                run.model.cleargrads()
                F.softmax_cross_entropy(run.model(x), t).backward()
                for name, parameter in parameters.items():
                    velocity[name] = run.config.momentum * velocity[name] + parameter.grad
                    parameter.array[...] -= run.config.lr * velocity[name]
                images += len(t)
    return {name: p.array.copy() for name, p in parameters.items()}, images


@pytest.mark.parametrize("limit", [48, 44, 49])
def test_a_round_is_the_mean_of_ranks_that_train_alone(tmp_path: Path, limit: int) -> None:
    """With equal shares, with unequal ones, and with a last step that only one rank takes."""
    options = {
        "limit_train": limit, "weight_decay": 0.0, "lr_scaling": "none", "schedule": "constant",
        "epochs": 1, "lr": 0.1,
    }  # fmt: skip
    train(tmp_path / "run", 3, local_steps=10, **options)
    found = latest_arrays(tmp_path / "run")

    def alone(communicator: Communicator) -> tuple[dict[str, np.ndarray], int]:
        run = prepare_run(config(tmp_path / "alone", **options), communicator)
        return train_alone(run, 10)

    by_rank = run_ranks(3, alone)
    images = [count for _, count in by_rank]
    assert sum(images) == limit
    for name in by_rank[0][0]:
        mean = np.average([arrays[name] for arrays, _ in by_rank], axis=0, weights=images)
        np.testing.assert_allclose(found[f"parameters/{name}"], mean, rtol=1e-4, atol=1e-6)


def test_ranks_part_within_a_round_and_meet_at_its_end() -> None:
    def work(communicator: Communicator) -> list[float]:
        array = np.zeros(1, np.float32)
        rounds = LocalSteps(silent_exchange(communicator), steps=2)
        seen = []
        for images in (4, 2, 6):
            array += communicator.rank
            rounds.begin_step(FakeStep((), images, images // 2, ends_epoch=images == 6))
            rounds.end_step([array])
            seen.append(float(array[0]))
        return seen

    # Rank 0 and 1 have the same number of images: the mean of 0 and 2, then that of 1 and 2.
    assert run_ranks(2, work) == [[0.0, 1.0, 1.5], [1.0, 1.0, 1.5]]


def silent_exchange(communicator: Communicator) -> NaiveExchange:
    """Of one parameter, without gradients."""
    arena = Arena(plan_buckets([ParameterSpec("p", (1,), (0,))], 64))
    return NaiveExchange(communicator, arena, {}, OwnGradients(arena.plan, 1))


def test_means_do_not_drift() -> None:
    """A parameter that no rank changes stays, over thousands of rounds, what it is."""

    def work(communicator: Communicator) -> float:
        array = np.float32([1.1])
        rounds = LocalSteps(silent_exchange(communicator), steps=1)
        for _ in range(3000):
            rounds.begin_step(FakeStep((), images=21, own_images=7))
            assert rounds.end_step([array])
        return float(array[0])

    assert run_ranks(3, work) == pytest.approx([1.1] * 3, rel=1e-6)


def test_one_rank_trains_as_ever(tmp_path: Path) -> None:
    ordinary = train(tmp_path / "ordinary", accumulation=2)
    local = train(tmp_path / "local", local_steps=3, accumulation=2)
    assert local["step_losses"] == ordinary["step_losses"]
    assert local["ranks"][0]["bytes_sent"] == 0


def test_local_steps_are_another_course_with_fewer_bytes(tmp_path: Path) -> None:
    """60 images, 16 a step: rounds of 3 steps and 1, in each of 2 epochs."""
    ordinary, local = (train(tmp_path / str(k), 2, local_steps=k) for k in (1, 3))
    assert local["step_losses"][0] == ordinary["step_losses"][0]
    assert local["step_losses"] != ordinary["step_losses"]
    run = prepare_run(config(tmp_path / "size"), SingleCommunicator())
    assert local["ranks"][0]["bytes_sent"] == 4 * 2 * optimal_bytes(run.arena.parameters.nbytes, 2)


@pytest.mark.parametrize("model", ["tests.models:TinyNet", NORMALISED])
@pytest.mark.parametrize("stop", [1, 4, 8])
def test_resumed_equals_uninterrupted(tmp_path: Path, model: str, stop: int) -> None:
    """An epoch has 5 steps: rounds of 2, 2 and 1."""
    options = {"model": model, "batch_size": 4, "epochs": 3, "local_steps": 2, "max_steps": 13}
    straight = train(tmp_path / "straight", 3, **options)
    train(tmp_path / "resumed", 3, **options | {"max_steps": stop})
    resumed = train(tmp_path / "resumed", 3, resume="auto", **options)
    for key in ("step_losses", "history", "final_accuracy", "best_accuracy", "steps", "images"):
        assert resumed[key] == straight[key], key
    one, other = (latest_arrays(tmp_path / name) for name in ("straight", "resumed"))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize(
    ("max_steps", "steps"), [(1, 3), (3, 3), (4, 5), (6, 8), (9, 10), (99, 10)]
)
def test_max_steps_and_the_banner_follow_rounds(tmp_path: Path, max_steps: int, steps: int) -> None:
    """An epoch has 5 steps: rounds of 3 and 2."""
    options = {"batch_size": 6, "local_steps": 3, "max_steps": max_steps}
    assert train(tmp_path / "run", 2, **options)["steps"] == steps
    banner = run_ranks(
        2,
        lambda communicator: render_banner(
            prepare_run(config(tmp_path / "banner", **options), communicator), [("h", "c", 1)] * 2
        ),
    )[0]
    assert f"to step {steps}," in banner
    assert "parameters and momentum every 3 steps" in banner


@pytest.mark.parametrize("this_epoch", [1, 4, 7])
@pytest.mark.parametrize("local_steps", [1, 2, 3, 10])
def test_steps_to_the_end_of_a_round(this_epoch: int, local_steps: int) -> None:
    """Against counting: an epoch has 7 steps, of which some may be behind us."""
    ends, step, left, taken = [0], 0, this_epoch, 0
    while step < 40:
        step, left, taken = step + 1, left - 1, taken + 1
        if taken == local_steps or left == 0:
            ends.append(step)
            taken = 0
        left = left or 7
    for steps in range(30):
        found = steps_to_round_end(
            steps, this_epoch=this_epoch, steps_per_epoch=7, round_steps=local_steps
        )
        assert found == next(end for end in ends if end >= steps)


def test_checkpoints_wait_for_the_end_of_a_round(tmp_path: Path) -> None:
    """An epoch has 8 steps, rounds of 3, 3 and 2: those after step 4, 8, 12 are 6, 8, 14."""
    options = {"local_steps": 3, "checkpoint_every": 4, "keep_checkpoints": 9, "eval_every": 9}
    train(tmp_path, 1, **options)
    names = [path.stem for path in find_checkpoints(tmp_path / "checkpoints")]
    assert names == ["best"] + [f"checkpoint-{step:08d}" for step in (6, 8, 14, 16)]


def test_a_resumed_run_keeps_the_rhythm_of_its_checkpoints(tmp_path: Path) -> None:
    train(tmp_path, max_steps=5, checkpoint_every=4)
    train(tmp_path, max_steps=9, checkpoint_every=4, keep_checkpoints=9, resume="auto")
    names = [path.stem for path in find_checkpoints(tmp_path / "checkpoints")]
    assert names == ["best"] + [f"checkpoint-{step:08d}" for step in (4, 5, 8, 9)]


def test_a_stop_waits_for_the_end_of_the_round(tmp_path: Path) -> None:
    def work(communicator: Communicator) -> tuple[bool, int]:
        stop = StopRequest()
        stop.received = communicator.rank == 1
        outcome = run_training(config(tmp_path, local_steps=3), communicator, stop=stop)
        return outcome.summary["stopped"], outcome.summary["steps"]

    assert run_ranks(2, work) == [(True, 3)] * 2


def test_checkpoints_hold_what_all_ranks_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, bytes, bytes]] = []

    class Looking(Checkpointing):
        def on_pause(self, state: Any, *, final: bool) -> None:
            arena, optimizer = self._snapshots.arena, self._snapshots.optimizer
            values = arena.parameters.tobytes(), optimizer.velocity.tobytes()
            seen.append((state.step, *values))
            super().on_pause(state, final=final)

    monkeypatch.setattr("edgeddl.training.extensions.checkpointing.Checkpointing", Looking)
    train(tmp_path, 3, local_steps=2, checkpoint_every=1, epochs=2)
    assert [step for step, _, _ in sorted(seen)] == [2] * 3 + [3] * 3 + [5] * 3 + [6] * 3
    assert len(set(seen)) == 4


def test_divergence_within_a_round_ends_all_ranks(tmp_path: Path) -> None:
    with pytest.raises(EdgeddlError, match="diverged"):
        train(tmp_path, 2, lr=1e30, epochs=5, local_steps=100)
    assert CheckpointStore(tmp_path / "checkpoints", keep=1).latest() is None


@pytest.mark.parametrize("compression", ["fp16", "powersgd"])
def test_compression_is_refused(compression: str) -> None:
    with pytest.raises(ConfigError, match=f"--compression {compression}") as caught:
        check_exchange_options(TrainConfig(local_steps=2, compression=compression))
    assert "use only one of the two options" in str(caught.value)
