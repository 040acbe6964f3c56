"""Short runs of small networks over threads, for tests of whole training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeddl.comm.local import run_ranks
from edgeddl.config import TrainConfig
from edgeddl.training.runner import run_training

OPTIONS: dict[str, Any] = {
    "model": "tests.models:TinyNet",
    "dataset": "shapes",
    "limit_train": 60,
    "limit_test": 30,
    "batch_size": 8,
    "epochs": 2,
    "lr": 0.05,
    "progress": "none",
}


def train(run_dir: Path, ranks: int = 1, **options: Any) -> dict[str, Any]:
    """Run to the end on so many threads; the summary."""
    config = TrainConfig(**OPTIONS | {"run_dir": run_dir} | options)
    outcomes = run_ranks(ranks, lambda communicator: run_training(config, communicator))
    assert all(
        outcome.summary["step_losses"] == outcomes[0].summary["step_losses"] for outcome in outcomes
    )
    return outcomes[0].summary
