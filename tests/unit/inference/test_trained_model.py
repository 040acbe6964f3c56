"""edgeddl.load: a model from a run folder or a checkpoint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgeddl
from edgeddl.chainer_compat import chainer
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.data import load_dataset, normalise
from edgeddl.errors import CheckpointError, ConfigError, EdgeddlError
from edgeddl.inference import load
from edgeddl.training.checkpoint import read_checkpoint, write_checkpoint
from tests.models import TinyNormalisedNet
from tests.unit.training.test_equivalence import NORMALISED
from tests.unit.training.training_runs import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(folder, 2, model=NORMALISED, epochs=2)
    return folder


def chainer_logits(path: Path, images: np.ndarray) -> np.ndarray:
    """As docs/guides/own-model.md computes them, without edgeddl.load."""
    model = TinyNormalisedNet()
    chainer.serializers.load_npz(path, model, path="parameters/")
    data = load_dataset("shapes", limit_train=1, limit_test=1)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return model(normalise(images, data.mean, data.std)).array


def test_a_run_folder_is_its_best_checkpoint(run: Path) -> None:
    trained = edgeddl.load(run)
    assert trained.origin == run / "checkpoints" / "best.npz"
    data = load_dataset("shapes", limit_train=1, limit_test=20)
    assert trained.classes == data.classes and trained.image_shape == (3, 32, 32)
    np.testing.assert_array_equal(trained.mean, data.mean)
    np.testing.assert_array_equal(trained.std, data.std)
    np.testing.assert_array_equal(
        trained.logits(data.test.images), chainer_logits(trained.origin, data.test.images)
    )
    probabilities = trained.probabilities(data.test.images)
    assert probabilities.shape == (20, 10) and probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    best = trained.predict(data.test.images, top=3)
    assert [len(scores) for scores in best] == [3] * 20
    assert best[0][0].name == data.classes[probabilities[0].argmax()]
    assert best[0][0].probability >= best[0][1].probability >= best[0][2].probability


def test_without_a_best_one_the_latest_is_used(tmp_path: Path) -> None:
    train(tmp_path, model=NORMALISED, epochs=1)
    (tmp_path / "checkpoints" / "best.npz").unlink()
    assert load(tmp_path).origin.name == "checkpoint-00000008.npz"


def test_a_checkpoint_without_a_description_of_its_model(run: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(run / "checkpoints" / "best.npz")
    assert set(checkpoint.meta.pop("model")) == {
        "name", "stem", "classes", "image_shape", "mean", "std", "fit",
    }  # fmt: skip
    for name in [name for name in checkpoint.arrays if name.startswith("parameters/bn/avg")]:
        del checkpoint.arrays[name]  # early checkpoints lack these, too
    write_checkpoint(tmp_path / "old.npz", checkpoint)
    old, new = load(tmp_path / "old.npz"), load(run)
    images = load_dataset("shapes", limit_train=1, limit_test=5).test.images
    assert old.description.to_json() == new.description.to_json()
    np.testing.assert_array_equal(old.logits(images), new.logits(images))


def test_the_other_ranks_receive_the_model_of_rank_0(run: Path, tmp_path: Path) -> None:
    images = load_dataset("shapes", limit_train=1, limit_test=5).test.images

    def logits(communicator: Communicator) -> Any:
        own = run if communicator.rank == 0 else tmp_path / "absent on this board"
        return load(own, communicator).logits(images)

    expected = load(run).logits(images)
    for found in run_ranks(3, logits):
        np.testing.assert_array_equal(found, expected)


def test_a_missing_run_is_an_error_on_all_ranks(tmp_path: Path) -> None:
    def fails(communicator: Communicator) -> str:
        with pytest.raises(EdgeddlError) as caught:
            load(tmp_path / "absent", communicator)
        return str(caught.value)

    assert all("absent: there is no such" in message for message in run_ranks(2, fails))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": {}}, "does not describe its model"),
        ({"model": 3}, "does not describe its model"),
        ({"model": None, "options": {"dataset": "imagenet"}}, "does not describe its model"),
    ],
)
def test_wrong_descriptions(
    run: Path, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    checkpoint = read_checkpoint(run / "checkpoints" / "best.npz")
    checkpoint.meta = {k: v for k, v in (checkpoint.meta | changes).items() if v is not None}
    write_checkpoint(tmp_path / "wrong.npz", checkpoint)
    with pytest.raises(CheckpointError, match=complaint):
        load(tmp_path / "wrong.npz")


def test_a_model_whose_code_has_changed(run: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(run / "checkpoints" / "best.npz")
    checkpoint.meta["model"]["name"] = "tests.models:TinyNet"
    write_checkpoint(tmp_path / "changed.npz", checkpoint)
    with pytest.raises(CheckpointError, match="does not fit its model: parameters/first/W is abse"):
        load(tmp_path / "changed.npz")


def test_files_that_are_not_checkpoints(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    for wrong in (text, tmp_path, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match=wrong.name) as caught:
            load(wrong)
        assert caught.value.hint and "give a run folder" in caught.value.hint


def test_images_of_another_shape(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"\(n, 32, 32, 3\), not uint8 of shape \(1, 8, 8, 3\)"):
        load(run).logits(np.zeros((1, 8, 8, 3), np.uint8))


def test_importing_edgeddl_imports_neither_numpy_nor_chainer() -> None:
    code = "import edgeddl, sys; print([n for n in ('numpy', 'chainer') if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
