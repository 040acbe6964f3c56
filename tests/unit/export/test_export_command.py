"""`edgeddl export` reads a run and writes whole files or none."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgeddl.__main__ import main
from edgeddl.chainer_compat import chainer
from edgeddl.data import load_dataset, normalise
from edgeddl.training.checkpoint import read_checkpoint
from tests.models import TinyNormalisedNet
from tests.support import REPOSITORY
from tests.unit.export.support import largest_difference, run_model, run_onnx
from tests.unit.training.test_chainer_interchange import StockNormalisedNet
from tests.unit.training.test_equivalence import NORMALISED
from tests.unit.training.training_runs import train

GUIDE = REPOSITORY / "docs" / "guides" / "export.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(folder, 2, model=NORMALISED, epochs=1)
    return folder


def trained_model(run: Path, make: Any = TinyNormalisedNet) -> Any:
    model = make()
    best = run / "checkpoints" / "best.npz"
    chainer.serializers.load_npz(best, model, path="parameters/")
    return model


@pytest.mark.parametrize("checkpoint", ["", "checkpoints/best.npz"])
def test_onnx_of_a_run_or_a_checkpoint(run: Path, tmp_path: Path, checkpoint: str) -> None:
    target = tmp_path / "new folder" / "model.onnx"
    assert main(["export", str(run / checkpoint), str(target), "--fold-batch-norm"]) == 0
    images = np.random.default_rng(0).standard_normal((3, 3, 32, 32), np.float32)
    found = run_onnx(target.read_bytes(), images)
    assert largest_difference(found, run_model(trained_model(run), images)) < 1e-5


def test_npz_is_read_by_chainer_into_its_own_links(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.npz"
    assert main(["export", str(run), str(target)]) == 0
    model = StockNormalisedNet()
    chainer.serializers.load_npz(target, model)
    expected = trained_model(run)
    for (name, found), (_, parameter) in zip(
        sorted(model.namedparams()), sorted(expected.namedparams()), strict=True
    ):
        np.testing.assert_array_equal(found.array, parameter.array, name)
    np.testing.assert_array_equal(model.bn.avg_mean, expected.bn.avg_mean)
    np.testing.assert_array_equal(model.bn.avg_var, expected.bn.avg_var)


def test_safetensors_has_the_names_of_the_checkpoint(run: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors", reason="pip install 'edgeddl[export]'")
    target = tmp_path / "model.safetensors"
    assert main(["export", str(run), str(target)]) == 0
    prefix = "parameters/"
    arrays = read_checkpoint(run / "checkpoints" / "best.npz").arrays
    expected = {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}
    with safetensors.safe_open(target, "numpy") as file:
        assert set(file.keys()) == set(expected) > {"conv/W", "bn/avg_mean"}
        for name, array in expected.items():
            if name != "bn/N":  # a counter, which only training uses
                np.testing.assert_array_equal(file.get_tensor(name), array)
        facts = file.metadata()
    assert (
        json.loads(facts["image_shape"]) == [3, 32, 32] and len(json.loads(facts["classes"])) == 10
    )


@pytest.mark.parametrize(
    ("target", "options", "problem"),
    [
        ("model.pt", [], "must end in .onnx, .npz, .safetensors"),
        ("model", [], "must end in"),
        ("model.npz", ["--softmax", "--fold-batch-norm"], "--fold-batch-norm, --softmax: only for"),
        ("folder.onnx", [], "it is a folder"),
        ("file/model.onnx", [], "cannot be written"),
    ],
)
def test_wrong_targets_are_refused(
    run: Path, tmp_path: Path, target: str, options: list[str], problem: str, capfd: Any
) -> None:
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "file").touch()
    assert main(["export", str(run), str(tmp_path / target), *options]) == 2
    error = capfd.readouterr().err
    assert problem in error and error.count("error") == 1 and "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.onnx"]


@pytest.mark.parametrize("suffix", ["onnx", "npz", "safetensors"])
def test_a_full_disk_leaves_the_earlier_file(
    run: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    target = tmp_path / f"model.{suffix}"
    target.write_text("earlier")

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    assert main(["export", str(run), str(target)]) == 2
    assert "No space left on device" in capfd.readouterr().err
    assert target.read_text() == "earlier" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("package", ["onnx", "safetensors"])
def test_a_missing_package_is_named_with_its_extra(
    run: Path, tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    for name in [*sys.modules]:
        if name == package or name.startswith(f"{package}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "edgeddl.export.onnx_file", raising=False)
    target = tmp_path / f"model.{package}"
    assert main(["export", str(run), str(target)]) == 2
    assert "pip install 'edgeddl[export]'" in capfd.readouterr().err
    assert not target.exists()


def test_a_missing_run_is_named(tmp_path: Path, capfd: Any) -> None:
    assert main(["export", str(tmp_path / "none"), str(tmp_path / "model.onnx")]) == 2
    assert "there is no such checkpoint or run folder" in capfd.readouterr().err


def test_the_documented_example_classifies_a_picture(run: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    script, model, picture = tmp_path / "classify.py", tmp_path / "m.onnx", tmp_path / "p.png"
    script.write_text(next(block for block in blocks if "# classify_onnx.py" in block))
    options = ["--softmax", "--include-normalisation", "uint8"]
    assert main(["export", str(run), str(model), *options]) == 0
    data = load_dataset("shapes", limit_train=1, limit_test=1)
    Image.fromarray(data.test.images[0]).save(picture)
    output = subprocess.run(
        [sys.executable, script, model, picture], capture_output=True, text=True, check=True
    ).stdout
    logits = run_model(trained_model(run), normalise(data.test.images, data.mean, data.std))
    assert output.split()[0] == data.classes[logits.argmax()]
