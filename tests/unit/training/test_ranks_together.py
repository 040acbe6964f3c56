"""What ranks must do alike, or for each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.config import TrainConfig
from edgeddl.errors import CheckpointError, EdgeddlError, RankDisagreement
from edgeddl.training.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from edgeddl.training.extensions.checkpointing import Checkpointing
from edgeddl.training.runner import run_training
from edgeddl.training.startup import prepare_run
from edgeddl.training.statistics import RunningStatistics, averaged_over_ranks
from edgeddl.training.stop import StopRequest
from tests.models import TinyNormalisedNet
from tests.unit.training.test_equivalence import NORMALISED, latest_arrays
from tests.unit.training.training_runs import OPTIONS, train


def config(run_dir: Path, **options: Any) -> TrainConfig:
    return TrainConfig(**OPTIONS | {"run_dir": run_dir} | options)


def test_evaluation_takes_the_mean_of_the_ranks_statistics_and_gives_them_back() -> None:
    def work(communicator: Communicator) -> tuple[float, float]:
        model = TinyNormalisedNet()
        model.bn.avg_mean[...] = communicator.rank
        with averaged_over_ranks(RunningStatistics(model), communicator):
            during = float(model.bn.avg_mean[0])
        return during, float(model.bn.avg_mean[0])

    assert run_ranks(3, work) == [(1.0, 0.0), (1.0, 1.0), (1.0, 2.0)]


def test_evaluating_leaves_no_trace_in_the_run(tmp_path: Path) -> None:
    options = {"model": NORMALISED, "epochs": 3}
    often = train(tmp_path / "often", 2, eval_every=1, **options)
    rarely = train(tmp_path / "rarely", 2, eval_every=3, **options)
    assert often["step_losses"] == rarely["step_losses"]
    one, other = latest_arrays(tmp_path / "often"), latest_arrays(tmp_path / "rarely")
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_ranks_start_from_rank_0s_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may draw its parameters from numpy's own generator, different on each rank."""
    monkeypatch.setattr("tests.models.draw_seed", lambda: int(np.random.default_rng().integers(99)))

    def work(communicator: Communicator) -> bytes:
        options = {"model": "tests.models:RandomNet"}
        run = prepare_run(config(tmp_path, **options), communicator)
        return run.arena.parameters.tobytes()

    assert len(set(run_ranks(3, work))) == 1


def test_a_stop_asked_of_one_rank_stops_all_at_the_same_step(tmp_path: Path) -> None:
    def work(communicator: Communicator) -> tuple[bool, int]:
        stop = StopRequest()
        stop.received = communicator.rank == 2
        outcome = run_training(config(tmp_path), communicator, stop=stop)
        return outcome.summary["stopped"], outcome.summary["steps"]

    assert run_ranks(3, work) == [(True, 1)] * 3


def test_weight_decay_pulls_weights_and_spares_biases(tmp_path: Path) -> None:
    """One step with decay less one without, from the same start: lr * decay * W."""
    options = {"max_steps": 1, "lr": 0.1, "momentum": 0.0, "schedule": "constant"}
    start = prepare_run(config(tmp_path / "start"), SingleCommunicator()).arena
    before = {name: start.parameter(name).copy() for name in start.names}
    with_decay = train_arrays(tmp_path / "with", weight_decay=0.5, **options)
    without = train_arrays(tmp_path / "without", weight_decay=0.0, **options)
    for name, value in before.items():
        pulled = without[f"parameters/{name}"] - with_decay[f"parameters/{name}"]
        expected = 0.1 * 0.5 * value if value.ndim > 1 else np.zeros_like(value)
        np.testing.assert_allclose(pulled, expected, atol=1e-6)


def test_ranks_with_other_data_are_refused(tmp_path: Path) -> None:
    """The same number of images, but others: only their fingerprint tells."""

    def work(communicator: Communicator) -> None:
        folder = tmp_path / f"rank-{communicator.rank}"
        write_cifar(folder, first_pixel=communicator.rank)
        options = {"dataset": "cifar10", "data_dir": folder}
        run_training(config(tmp_path / "run", **options), communicator)

    with pytest.raises(RankDisagreement, match="data"):
        run_ranks(2, work)


@pytest.mark.parametrize(
    ("difference", "explanation"),
    [
        ("frozen", "parameter second/W: (28, 16, 3, 3) used once on ranks 0, 2,"
         " (28, 16, 3, 3) frozen on rank 1"),
        ("more", "parameter more/W: absent on ranks 0, 2, (10, 10) used once on rank 1"),
        ("shape", "parameter head/W: (10, 28) used once on ranks 0, 2,"
         " (11, 28) used once on rank 1"),
        ("order", "gradient 1 of 6 in the order of the backward pass:"
         " head/W on ranks 0, 2, second/W on rank 1"),
    ],
)  # fmt: skip
def test_a_model_that_differs_from_rank_to_rank_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, difference: str, explanation: str
) -> None:
    monkeypatch.setenv("TEST_DIFFERENCE", difference)
    with pytest.raises(RankDisagreement) as raised:
        train(tmp_path, 3, model="tests.models:RankDependentNet")
    assert f"\n  {explanation}\n" in str(raised.value)
    assert "hosts by rank: 0: thread-0, 1: thread-1, 2: thread-2" in str(raised.value)
    assert "hint: build the same layers on every rank" in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_run_stopped_at_the_end_of_an_epoch_still_gets_its_best(tmp_path: Path) -> None:
    """The evaluation that was due then is made when the run goes on, and its model is kept."""
    stop = StopRequest()

    class StopAfterEpoch(Checkpointing):
        def on_step(self, report: Any) -> None:
            stop.received = report.state.step == 7

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgeddl.training.extensions.checkpointing.Checkpointing", StopAfterEpoch)
        run_training(config(tmp_path), SingleCommunicator(), stop=stop)
    assert not (tmp_path / "checkpoints" / "best.npz").exists()
    train(tmp_path, resume="auto", max_steps=9)
    assert read_checkpoint(tmp_path / "checkpoints" / "best.npz").meta["state"]["best_step"] == 8


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ranks", None),
        ("ranks", "2"),
        ("options", [1]),
        ("state", None),
        ("state", {}),
        ("state.step", "2"),
        ("state.step", 5),
        ("state.history", [{}]),
        ("state.unknown", 1),
        ("state.end_evaluation", {"step": 2}),
    ],
)
def test_a_checkpoint_that_describes_nonsense_is_refused(
    tmp_path: Path, key: str, value: Any
) -> None:
    train(tmp_path, max_steps=2, model=NORMALISED)
    checkpoint = latest(tmp_path)
    target: dict[str, Any] = checkpoint.meta
    *path, last = key.split(".")
    for name in path:
        target = target[name]
    target[last] = value
    CheckpointStore(tmp_path / "checkpoints", keep=3).save(2, checkpoint)
    with pytest.raises(CheckpointError, match=r"checkpoint-00000002\.npz"):
        train(tmp_path, resume="auto", model=NORMALISED)


def test_a_checkpoint_without_every_ranks_statistics_is_refused(tmp_path: Path) -> None:
    train(tmp_path, 2, max_steps=2, model=NORMALISED)
    checkpoint = latest(tmp_path)
    del checkpoint.arrays["rank_statistics/bn/avg_var"]
    CheckpointStore(tmp_path / "checkpoints", keep=3).save(2, checkpoint)
    with pytest.raises(EdgeddlError, match="rank_statistics/bn/avg_var"):
        train(tmp_path, 2, resume="auto", model=NORMALISED)


def test_diverged_parameters_reach_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(EdgeddlError, match="diverged"):
        train(tmp_path, lr=1e38, limit_train=8, epochs=1, momentum=0.0)
    assert not list((tmp_path / "checkpoints").iterdir())


def train_arrays(folder: Path, **options: Any) -> dict[str, np.ndarray]:
    train(folder, **options)
    return latest_arrays(folder)


def latest(run_dir: Path) -> Checkpoint:
    found = CheckpointStore(run_dir / "checkpoints", keep=3).latest()
    assert found is not None
    return found[1]


def write_cifar(folder: Path, first_pixel: int) -> None:
    """CIFAR-10 in its official layout, black but for one pixel."""
    target = folder / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    records = np.zeros((10_000, 3073), np.uint8)
    records[:, 0] = np.arange(10_000) % 10
    records[0, 1] = first_pixel
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        records.tofile(target / f"{name}.bin")
