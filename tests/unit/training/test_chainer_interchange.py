"""Chainer's own tools read what edgeddl writes, and edgeddl runs models written for Chainer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeddl.chainer_compat import L, chainer
from edgeddl.training.checkpoint import read_checkpoint, write_checkpoint
from edgeddl.training.statistics import RunningStatistics
from tests.models import TinyNormalisedNet, make_sequential
from tests.unit.training.test_equivalence import NORMALISED
from tests.unit.training.training_runs import train

DOCS = Path(__file__).parents[3] / "docs" / "guides" / "own-model.md"


class StockNormalisedNet(chainer.Chain):
    """TinyNormalisedNet of Chainer's own links."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(3, 8, 3, nobias=True)
            self.bn = L.BatchNormalization(8)
            self.head = L.Linear(8, 10)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (NORMALISED, TinyNormalisedNet),
        (NORMALISED, StockNormalisedNet),
        ("tests.models:make_sequential", make_sequential),
    ],
)
def test_load_npz_reads_a_trained_model(tmp_path: Path, name: str, make: type) -> None:
    """With its running statistics, the mean over ranks, and nothing left out."""
    train(tmp_path, 2, model=name, epochs=1)
    path = tmp_path / "checkpoints" / "best.npz"
    model = make()
    chainer.serializers.load_npz(path, model, path="parameters/")
    arrays = read_checkpoint(path).arrays
    for name, parameter in model.namedparams():
        np.testing.assert_array_equal(parameter.array, arrays[f"parameters{name}"])
    found, untrained = RunningStatistics(model).arrays(), RunningStatistics(make()).arrays()
    assert len(found) == 2
    for name, value in found.items():
        np.testing.assert_array_equal(value, arrays[f"statistics/{name}"])
        assert not np.array_equal(value, untrained[name])


def test_checkpoints_of_earlier_versions_are_resumed(tmp_path: Path) -> None:
    """They hold neither running statistics nor counters among the parameters."""
    straight = train(tmp_path / "straight", 2, model=NORMALISED)
    train(tmp_path / "old", 2, model=NORMALISED, max_steps=3)
    path = tmp_path / "old" / "checkpoints" / "checkpoint-00000003.npz"
    checkpoint = read_checkpoint(path)
    for name in ("avg_mean", "avg_var", "N"):
        del checkpoint.arrays[f"parameters/bn/{name}"]
    write_checkpoint(path, checkpoint)
    resumed = train(tmp_path / "old", 2, model=NORMALISED, resume="auto")
    assert resumed["step_losses"] == straight["step_losses"]


def test_the_documented_example_runs(tmp_path: Path) -> None:
    """A model file that begins with `import chainer`, trained and loaded again."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    model, use = (
        next(block for block in blocks if f"# {name}\n" in block)
        for name in ("mynet.py", "classify.py")
    )
    assert model.startswith("# mynet.py\nimport chainer\n")
    (tmp_path / "mynet.py").write_text(model)
    (tmp_path / "classify.py").write_text(use)
    options = "--run-dir runs/mynet --model mynet:MyNet --dataset shapes --epochs 1"
    limits = "--limit-train 64 --limit-test 32 --progress none"
    training = ["-m", "edgeddl.train", *options.split(), *limits.split()]
    for arguments in (training, ["classify.py"]):
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\[[0-9 ]+\]\n", done.stdout)
