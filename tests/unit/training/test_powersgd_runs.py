"""Training runs whose gradients travel by PowerSGD, and what of it is in their checkpoints."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ParameterSpec, plan_buckets
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.comm.naive import NaiveExchange
from edgeddl.comm.policies.powersgd import PowerSGD
from edgeddl.errors import EdgeddlError
from edgeddl.training.checkpoint import CheckpointStore, read_checkpoint
from tests.unit.training.test_equivalence import NORMALISED, assert_same_losses, latest_arrays
from tests.unit.training.training_runs import train

POWERSGD: dict[str, Any] = {"compression": "powersgd", "compression_rank": 2}


def powersgd_names(run_dir: Path) -> set[str]:
    return {name for name in latest_arrays(run_dir) if name.startswith("powersgd/")}


def test_learns_about_as_well_with_a_fraction_of_the_bytes(tmp_path: Path) -> None:
    options = {"limit_train": 40, "epochs": 25, "augment": False, "lr": 0.1, "weight_decay": 0.0}
    full = train(tmp_path / "full", 2, **options)
    low = train(tmp_path / "low", 2, **options, **POWERSGD)
    assert low["step_losses"][0] == full["step_losses"][0]
    assert low["step_losses"] != full["step_losses"]
    assert low["step_losses"][-1] < 0.75 * low["step_losses"][0]
    assert low["ranks"][0]["bytes_sent"] < 0.25 * full["ranks"][0]["bytes_sent"]


@pytest.mark.parametrize("options", [{}, {"bucket_mib": 1e-3}, {"accumulation": 2}])
def test_bucketed_equals_naive_bit_for_bit(tmp_path: Path, options: dict[str, Any]) -> None:
    naive = train(tmp_path / "n", 3, communicator="naive", **options, **POWERSGD)
    bucketed = train(tmp_path / "b", 3, **options, **POWERSGD)
    assert bucketed["step_losses"] == naive["step_losses"]
    one, other = latest_arrays(tmp_path / "n"), latest_arrays(tmp_path / "b")
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize("speeds", [(1.0, 0.3, 1.0), (0.1, 9.0, 1.0)])
def test_shares_of_a_batch_do_not_matter(tmp_path: Path, speeds: tuple[float, ...]) -> None:
    """P and Q are linear in the sum of the ranks' gradients and errors, whoever has how much."""
    options = {"model": "tests.models:SmoothNet", "epochs": 3, **POWERSGD}
    even = train(tmp_path / "even", 3, **options)
    uneven = train(tmp_path / "uneven", 3, **options, balance=speeds)
    assert_same_losses(uneven, even)


def test_sums_are_left_factored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("a product was written to memory")

    monkeypatch.setattr("edgeddl.comm.policies.powersgd.low_rank_product", refuse)
    train(tmp_path, 2, **POWERSGD)


@pytest.mark.parametrize("model", ["tests.models:TinyNet", NORMALISED])
@pytest.mark.parametrize("stop", [1, 4, 8])
def test_resumed_equals_uninterrupted(tmp_path: Path, model: str, stop: int) -> None:
    options = {"model": model, "batch_size": 8, "epochs": 3, "max_steps": 9, **POWERSGD}
    straight = train(tmp_path / "straight", 3, **options)
    train(tmp_path / "resumed", 3, **options | {"max_steps": stop})
    resumed = train(tmp_path / "resumed", 3, resume="auto", **options)
    assert resumed["step_losses"] == straight["step_losses"]
    one, other = (latest_arrays(tmp_path / name) for name in ("straight", "resumed"))
    assert one.keys() == other.keys()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    assert powersgd_names(tmp_path / "resumed")


def test_errors_are_each_ranks_own(tmp_path: Path) -> None:
    train(tmp_path, 3, max_steps=2, **POWERSGD)
    errors = latest_arrays(tmp_path)["powersgd/rank_error/second/W"]
    assert errors.shape == (3, 144, 28)
    assert all(errors[rank].any() for rank in range(3))
    assert not np.array_equal(errors[0], errors[1])


def test_other_runs_have_no_such_arrays(tmp_path: Path) -> None:
    train(tmp_path, 2, max_steps=1, compression="fp16")
    assert not powersgd_names(tmp_path)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_with_other_ranks_nothing_is_lost(ranks: int) -> None:
    """What three ranks had not sent yet, so many have not sent yet."""
    plan = plan_buckets([ParameterSpec("W", (30, 20), (0, 1))], 10_000)

    def fill(communicator: Communicator) -> dict[str, np.ndarray]:
        powersgd = PowerSGD(plan, 2)
        powersgd.errors[...] = np.random.default_rng(communicator.rank).normal(size=600)
        powersgd.factors[...] = 5
        return NaiveExchange(communicator, Arena(plan), {}, powersgd).state()

    def restore(communicator: Communicator) -> PowerSGD:
        powersgd = PowerSGD(plan, 2)
        arrays = written if communicator.rank == 0 else None
        NaiveExchange(communicator, Arena(plan), {}, powersgd).load_state(arrays, 3)
        return powersgd

    written, *nothing = run_ranks(3, fill)
    assert nothing == [{}, {}]
    restored = run_ranks(ranks, restore)
    total = sum(one.errors.astype(float) for one in restored)
    kept = written["rank_error/W"].reshape(3, -1).sum(axis=0, dtype=float)
    np.testing.assert_allclose(total, kept, atol=1e-6)
    assert all((one.factors == 5).all() for one in restored)


def test_going_on_with_other_ranks(tmp_path: Path) -> None:
    train(tmp_path, 3, max_steps=2, **POWERSGD)
    rest = train(tmp_path, 2, resume="auto", **POWERSGD)
    assert rest["images"] == 120
    assert latest_arrays(tmp_path)["powersgd/rank_error/second/W"].shape[0] == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, POWERSGD), (POWERSGD, {}), (POWERSGD, POWERSGD | {"compression_rank": 3})],
)
def test_another_compression_starts_from_its_initial_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: dict[str, Any], after: dict[str, Any]
) -> None:
    train(tmp_path, 2, max_steps=2, **before)
    with caplog.at_level(logging.INFO, "edgeddl"):
        summary = train(tmp_path, 2, max_steps=4, resume="auto", **after)
    assert "option given now: --compression" in caplog.text
    assert summary["steps"] == 4
    assert bool(powersgd_names(tmp_path)) == bool(after)


def test_a_checkpoint_without_an_error_is_refused(tmp_path: Path) -> None:
    train(tmp_path, 2, max_steps=2, **POWERSGD)
    checkpoint = read_checkpoint(tmp_path / "checkpoints" / "checkpoint-00000002.npz")
    del checkpoint.arrays["powersgd/rank_error/head/W"]
    CheckpointStore(tmp_path / "checkpoints", keep=3).save(2, checkpoint)
    with pytest.raises(EdgeddlError, match="powersgd/rank_error/head/W"):
        train(tmp_path, 2, resume="auto", **POWERSGD)


def test_divergence_ends_the_run_with_the_usual_message(tmp_path: Path) -> None:
    with pytest.raises(EdgeddlError, match="diverged") as caught:
        train(tmp_path, 2, lr=1e30, epochs=5, **POWERSGD)
    assert "--lr" in str(caught.value)


def test_ranks_without_images(tmp_path: Path) -> None:
    summary = train(tmp_path, 5, limit_train=3, limit_test=2, epochs=2, **POWERSGD)
    assert all(np.isfinite(summary["step_losses"]))
