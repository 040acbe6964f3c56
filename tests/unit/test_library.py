"""edgeddl.train and the other names of the package."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import pytest

import edgeddl
from edgeddl.errors import ConfigError
from tests.models import TinyNet
from tests.unit.training.training_runs import OPTIONS, train

SMALL = {name: value for name, value in OPTIONS.items() if name not in ("model", "dataset")}


def test_every_exported_name_exists() -> None:
    for name in edgeddl._LAZY:
        assert getattr(edgeddl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = edgeddl.nothing


def test_a_run_from_python_equals_one_from_options(tmp_path: Path) -> None:
    expected = train(tmp_path / "expected")
    run = edgeddl.train(TinyNet, "shapes", run_dir=tmp_path / "own", **SMALL)
    assert run.folder == tmp_path / "own" and run.exit_code == 0
    assert run.summary["step_losses"] == expected["step_losses"]
    assert run.accuracy == expected["final_accuracy"]
    assert run.best_accuracy == expected["best_accuracy"]
    trained = run.load()
    assert trained.description.name == "tests.models:TinyNet"
    assert trained.origin == tmp_path / "own" / "checkpoints" / "best.npz"


def test_the_module_of_the_same_name_is_callable(tmp_path: Path) -> None:
    module = importlib.import_module("edgeddl.train")
    run = module("tests.models:TinyNet", "shapes", run_dir=tmp_path, **SMALL | {"epochs": 1})
    assert run.summary["epochs"] == 1


def test_a_thread_may_train(tmp_path: Path) -> None:
    """As some notebooks do; only the main thread receives signals."""
    runs: list[edgeddl.Run] = []
    options = SMALL | {"epochs": 1}
    work = threading.Thread(
        target=lambda: runs.append(edgeddl.train(TinyNet, "shapes", run_dir=tmp_path, **options))
    )
    work.start()
    work.join()
    assert runs[0].exit_code == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batchsize": 3}, "unknown key 'batchsize'"),
        ({"batch_size": "many"}, "batch_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"model": lambda classes: None}, "cannot be imported by its name"),
        ({"model": "resnet81"}, "did you mean resnet18"),
    ],
)
def test_wrong_arguments(tmp_path: Path, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edgeddl.train(**{"dataset": "shapes", "run_dir": tmp_path / "run", **options})
    assert complaint in str(caught.value)
    assert not (tmp_path / "run").exists()
