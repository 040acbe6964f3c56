"""However a run is cut into ranks, micro-batches, buckets and resumed parts, it is the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.training.checkpoint import CheckpointStore
from tests.unit.training.training_runs import train

EPSILON = float(np.finfo(np.float32).eps)
NORMALISED = "tests.models:TinyNormalisedNet"


def loss_limits(steps: int) -> np.ndarray:
    """How far losses of the same run, summed in another order, may be apart at each step.

    A loss is a float32, a mean of others: summing in another order moves it by a few eps. Each
    step adds as much to the parameters, so the limit grows with the number of steps: 8 * eps *
    step. Up to 2 * eps were seen in 16 steps; an image left out moves the loss by 1e-2.
    """
    return 8 * EPSILON * (1 + np.arange(steps))


def assert_same_losses(one: dict[str, Any], other: dict[str, Any]) -> None:
    losses = np.array([one["step_losses"], other["step_losses"]])
    apart = np.abs(losses[0] / losses[1] - 1)
    assert (apart <= loss_limits(losses.shape[1])).all(), apart


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_times_batch_equals_one_rank_with_their_batch(tmp_path: Path, ranks: int) -> None:
    """60 images do not divide by 5 x 8: the last step is uneven."""
    options = {"lr_scaling": "none", "cutout": 8}
    many = train(tmp_path / "many", ranks, batch_size=8, **options)
    one = train(tmp_path / "one", 1, batch_size=8 * ranks, **options)
    assert_same_losses(many, one)
    assert many["final_accuracy"] == one["final_accuracy"]


@pytest.mark.parametrize(
    ("speeds", "accumulation"),
    [((1.0, 0.5), 1), ((1.0, 0.3, 1.0), 1), ((0.1, 9.0, 1.0), 1), ((1.0, 0.4, 1.0), 3)],
)
def test_ranks_with_any_shares_equal_one_rank(
    tmp_path: Path, speeds: tuple[float, ...], accumulation: int
) -> None:
    ranks, options = len(speeds), {"lr_scaling": "none", "cutout": 8}
    share = 8 // accumulation
    shared = train(
        tmp_path / "many", ranks, batch_size=share, accumulation=accumulation, balance=speeds,
        **options,
    )  # fmt: skip
    one = train(tmp_path / "one", 1, batch_size=share * accumulation * ranks, **options)
    assert_same_losses(shared, one)
    assert shared["final_accuracy"] == one["final_accuracy"]
    shares = [rank["batch_share"] for rank in shared["ranks"]]
    assert sum(shares) == share * accumulation * ranks and len(set(shares)) > 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_accumulation_equals_a_larger_batch(tmp_path: Path, ranks: int) -> None:
    options = {"lr_scaling": "none", "label_smoothing": 0.1, "nesterov": True}
    accumulated = train(tmp_path / "a", ranks, batch_size=8, accumulation=3, **options)
    whole = train(tmp_path / "w", ranks, batch_size=24, **options)
    assert_same_losses(accumulated, whole)


def test_linear_scaling_counts_ranks_and_accumulation(tmp_path: Path) -> None:
    scaled = train(tmp_path / "s", 2, batch_size=4, accumulation=2, lr=0.01, warmup_epochs=0.0)
    plain = train(tmp_path / "p", 1, batch_size=16, lr=0.04, lr_scaling="none", warmup_epochs=0.0)
    assert_same_losses(scaled, plain)


@pytest.mark.parametrize("communicator", ["bucketed", "naive"])
@pytest.mark.parametrize("kind", ["Net", "StockNet"])
def test_what_forgets_activations_trains_all_the_same(
    tmp_path: Path, kind: str, communicator: str
) -> None:
    models = {"Net": "TinyNet", "StockNet": "StockNet"}
    runs = [
        train(tmp_path / name, 2, model=f"tests.models:{name}", communicator=communicator)
        for name in (models[kind], f"Forgetful{kind}")
    ]
    assert_same_losses(*runs)


@pytest.mark.parametrize("model", ["tests.models:TinyNet", NORMALISED, "tests.models:StockNet"])
def test_the_same_run_twice_is_the_same_bit_for_bit(tmp_path: Path, model: str) -> None:
    one, other = (train(tmp_path / name, 3, model=model) for name in "ab")
    assert one["step_losses"] == other["step_losses"]
    assert one["history"] == other["history"]


@pytest.mark.parametrize(
    "options",
    [{}, {"bucket_mib": 1e-3}, {"accumulation": 2}, {"balance": (1.0, 0.2, 2.0)}],
)
def test_bucketed_equals_naive_bit_for_bit(tmp_path: Path, options: dict[str, Any]) -> None:
    naive = train(tmp_path / "n", 3, communicator="naive", **options)
    bucketed = train(tmp_path / "b", 3, communicator="bucketed", **options)
    assert bucketed["step_losses"] == naive["step_losses"]


def test_seed_matters(tmp_path: Path) -> None:
    one, other = (train(tmp_path / str(seed), seed=seed) for seed in (1, 2))
    assert one["step_losses"] != other["step_losses"]


def test_half_precision_on_the_wire_stays_close(tmp_path: Path) -> None:
    full = train(tmp_path / "full", 2)
    half = train(tmp_path / "half", 2, compression="fp16")
    np.testing.assert_allclose(half["step_losses"], full["step_losses"], rtol=1e-3)
    assert half["step_losses"] != full["step_losses"]
    half_bytes, full_bytes = (run["ranks"][0]["bytes_sent"] for run in (half, full))
    assert full_bytes / 2 <= half_bytes <= 1.1 * full_bytes / 2  # whole blocks


@pytest.mark.parametrize("model", ["tests.models:TinyNet", NORMALISED])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("stop", [1, 4, 8])
def test_resumed_equals_uninterrupted(tmp_path: Path, model: str, ranks: int, stop: int) -> None:
    """Stopped in the middle of an epoch or at its end: every bit of the result is the same."""
    options = {"model": model, "batch_size": 24 // ranks, "epochs": 3, "max_steps": 9}
    straight = train(tmp_path / "straight", ranks, **options)
    train(tmp_path / "resumed", ranks, **options | {"max_steps": stop})
    resumed = train(tmp_path / "resumed", ranks, resume="auto", **options)
    for key in ("step_losses", "history", "final_accuracy", "best_accuracy", "steps", "images"):
        assert resumed[key] == straight[key], key
    one, other = (latest_arrays(tmp_path / name) for name in ("straight", "resumed"))
    assert one.keys() == other.keys()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_resumed_equals_uninterrupted_with_fixed_shares(tmp_path: Path) -> None:
    options = {"model": NORMALISED, "epochs": 3, "balance": (1.0, 0.3, 1.0)}
    straight = train(tmp_path / "straight", 3, **options)
    train(tmp_path / "resumed", 3, **options | {"max_steps": 4})
    resumed = train(tmp_path / "resumed", 3, resume="auto", **options)
    assert resumed["step_losses"] == straight["step_losses"]
    one, other = (latest_arrays(tmp_path / name) for name in ("straight", "resumed"))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_resuming_with_other_ranks_goes_on_where_the_run_was(tmp_path: Path) -> None:
    options = {"model": NORMALISED, "epochs": 2, "lr_scaling": "none"}
    first = train(tmp_path / "run", 3, batch_size=8, max_steps=2, **options)
    rest = train(tmp_path / "run", 2, batch_size=8, resume="auto", **options)
    assert rest["step_losses"][:2] == first["step_losses"]
    # 48 of 60 images are behind it: a step of 12 ends the epoch, then 16 a step.
    assert rest["steps"] == 2 + 1 + 4
    assert rest["images"] == 120
    assert [entry["epoch"] for entry in rest["history"]] == [1, 2]


def latest_arrays(run_dir: Path) -> dict[str, np.ndarray]:
    found = CheckpointStore(run_dir / "checkpoints", keep=3).latest()
    assert found is not None
    return found[1].arrays
