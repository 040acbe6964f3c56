"""Training runs with the policy of docs/examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.training.test_equivalence import latest_arrays
from tests.unit.training.training_runs import train

OWN = {"compression": "docs.examples.round_robin:RoundRobin"}
LEARNING: dict[str, Any] = {
    "limit_train": 40, "epochs": 50, "augment": False, "lr": 0.1, "weight_decay": 0.0,
}  # fmt: skip


def test_it_learns_with_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    full = train(tmp_path / "full", 2, **LEARNING)
    own = train(tmp_path / "own", 2, **LEARNING, **OWN)
    assert own["step_losses"][-1] < 0.8 * own["step_losses"][0]
    assert own["ranks"][0]["bytes_sent"] < 0.26 * full["ranks"][0]["bytes_sent"]


@pytest.mark.parametrize("communicator", ["bucketed", "naive"])
def test_resumed_equals_uninterrupted(tmp_path: Path, communicator: str) -> None:
    options = {"communicator": communicator, "max_steps": 7, **OWN}
    straight = train(tmp_path / "straight", 2, **options)
    train(tmp_path / "resumed", 2, **options | {"max_steps": 3})
    resumed = train(tmp_path / "resumed", 2, resume="auto", **options)
    assert resumed["step_losses"] == straight["step_losses"]
    one, other = (latest_arrays(tmp_path / name) for name in ("straight", "resumed"))
    assert f"{OWN['compression']}/rank_unsent" in one
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_going_on_without_it_or_with_other_ranks(tmp_path: Path) -> None:
    train(tmp_path, 2, max_steps=2, **OWN)
    train(tmp_path, 3, max_steps=3, resume="auto", **OWN)
    assert train(tmp_path, 2, max_steps=4, resume="auto")["steps"] == 4
    assert not [name for name in latest_arrays(tmp_path) if "unsent" in name]
