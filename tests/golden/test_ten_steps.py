"""Ten steps against ten recorded losses: the guard of the whole path from pixels to update.

Data, augmentation, initial parameters, forward, backward, all-reduce, optimizer and schedule all
go into these numbers. They were recorded with Chainer's own functions in the place of edgeddl's, so
that they say at the same time that the kernels train as Chainer does. Record them anew, knowingly,
with `EDGEDDL_KERNELS=chainer python -m tests.golden.test_ten_steps`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.unit.training.training_runs import train

RECORDED = Path(__file__).with_name("losses.json")
# Small learning rates: ReLUs and maxima that change places amplify rounding errors, in ResNet-18
# by 70 a step at the rate of ResNet-9.
RUNS: dict[str, dict[str, object]] = {
    "resnet9": {"model": "resnet9", "batch_size": 16, "lr": 3e-3},
    "resnet18": {"model": "resnet18", "batch_size": 16, "lr": 1e-4},
    "resnet18-imagenet-stem": {
        "model": "resnet18", "stem": "imagenet", "batch_size": 32, "lr": 1e-4,
    },
}  # fmt: skip


def tolerances(steps: int) -> np.ndarray:
    """Relative, by step: every kernel sums in another order, and training amplifies it.

    Seen between Chainer's functions, NumPy's kernels with two BLAS kernels, and the native ones
    (SSE2, AVX2, AVX-512): 6e-7 in the first step, 1e-5 in the fourth, 3e-4 in the ninth at most.
    The limit starts at 1e-5 and doubles each step, to 5e-3.
    """
    return 1e-5 * 2.0 ** np.arange(steps)


def ten_losses(name: str, folder: Path) -> list[float]:
    run = {
        "limit_train": 640, "limit_test": 8, "max_steps": 10, "epochs": 30, "cutout": 8,
        "nesterov": True, "label_smoothing": 0.1, "seed": 1,
    } | RUNS[name]  # fmt: skip
    return train(folder / name, 2, **run)["step_losses"]


@pytest.mark.parametrize("name", RUNS)
def test_ten_steps(tmp_path: Path, name: str) -> None:
    recorded = np.array(json.loads(RECORDED.read_text())[name])
    apart = np.abs(np.array(ten_losses(name, tmp_path)) / recorded - 1)
    assert (apart <= tolerances(10)).all(), apart


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        losses = {name: ten_losses(name, Path(folder)) for name in RUNS}
    RECORDED.write_text(json.dumps(losses, indent=1) + "\n")
