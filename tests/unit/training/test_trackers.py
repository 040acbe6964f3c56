"""--tensorboard and --mlflow, read back with the packages themselves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from edgeddl.errors import ConfigError, EdgeddlError
from edgeddl.options import parse_train_options
from tests.unit.training.training_runs import train


def read_tensorboard(folder: Path) -> dict[str, dict[int, float]]:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = module.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in tags}


def check(found: dict[str, dict[int, float]], summary: dict[str, Any]) -> None:
    losses = dict(enumerate(summary["step_losses"], 1))
    assert found["train/loss"] == pytest.approx(losses, rel=1e-6)
    accuracies = {entry["step"]: entry["accuracy"] for entry in summary["history"]}
    assert found["test/accuracy"] == pytest.approx(accuracies, rel=1e-6)
    assert found["train/learning_rate"].keys() == losses.keys()
    assert min(found["speed/images_per_second"].values()) > 0


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard: edgeddl[tensorboard]")
    summary = train(tmp_path / "run", 2, tensorboard=tmp_path / "board")
    assert [path.name for path in (tmp_path / "board").iterdir()] == ["run"]
    assert len(list((tmp_path / "board/run").iterdir())) == 1  # only rank 0 writes
    check(read_tensorboard(tmp_path / "board/run"), summary)


def test_a_resumed_run_continues_the_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard: edgeddl[tensorboard]")
    board = tmp_path / "board"
    train(tmp_path / "run", tensorboard=board, max_steps=8)
    summary = train(tmp_path / "run", tensorboard=board, resume="auto")
    check(read_tensorboard(board / "run"), summary)


def test_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow: edgeddl[mlflow]")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    summary = train(tmp_path / "run", 2, mlflow=uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("edgeddl")
    (run,) = client.search_runs([experiment.experiment_id])  # only rank 0 writes
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    assert run.data.params["batch_size"] == "8" and run.data.params["ranks"] == "2"
    names = run.data.metrics
    history = {name: client.get_metric_history(run.info.run_id, name) for name in names}
    check({name: {m.step: m.value for m in values} for name, values in history.items()}, summary)


def test_a_failed_run_is_marked(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow: edgeddl[mlflow]")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    failing = ("tests.unit.training.own_extension:Failing",)
    with pytest.raises(RuntimeError, match="third step"):
        train(tmp_path / "run", mlflow=uri, extension=failing)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("edgeddl")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"


@pytest.mark.parametrize("option", ["tensorboard", "mlflow"])
def test_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setitem(sys.modules, option, None)
    with pytest.raises(ConfigError, match=rf"pip install 'edgeddl\[{option}\]'"):
        train(tmp_path / "run", **{option: str(tmp_path / "board")})
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard: edgeddl[tensorboard]")
    (tmp_path / "file").touch()
    with pytest.raises(EdgeddlError, match=r"--tensorboard .*Not a directory"):
        train(tmp_path / "run", 2, tensorboard=tmp_path / "file/board")


def test_training_continues_if_a_tracker_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard: edgeddl[tensorboard]")
    from edgeddl.training.extensions.tensorboard import TensorBoard

    def refuse(self: TensorBoard) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(TensorBoard, "flush", refuse)
    summary = train(tmp_path / "run", tensorboard=tmp_path / "board")
    assert summary["epochs"] == 2
    assert caplog.text.count("training continues, but without TensorBoard: No space left") == 1


@pytest.mark.parametrize("option", ["--tensorboard", "--mlflow"])
def test_an_empty_value(option: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        parse_train_options([option, ""])
