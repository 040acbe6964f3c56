"""edgeddl evaluate: counts, tables and files."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.__main__ import main
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.data import ImageSet, load_dataset
from edgeddl.errors import ConfigError
from edgeddl.inference import load
from edgeddl.inference.evaluation import batch_size, evaluate, label_numbers
from tests.unit.training.test_equivalence import NORMALISED
from tests.unit.training.training_runs import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(folder, 1, model=NORMALISED, epochs=2)
    return folder


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_any_number_of_ranks_gives_the_same_result(run: Path, ranks: int) -> None:
    data = load_dataset("shapes", limit_train=1, limit_test=290)  # 5 batches, the last one short
    trained = load(run)
    numbers = label_numbers(trained, data.classes, "shapes")
    alone = evaluate(trained, data.test, numbers, SingleCommunicator())
    assert alone.images == 290 and 0 < alone.correct < 290

    def on_a_rank(communicator: Communicator) -> Any:
        own = load(run, communicator)
        result = evaluate(own, data.test, numbers, communicator)
        return result.confusion.tolist(), result.loss

    for found in run_ranks(ranks, on_a_rank):
        assert found == (alone.confusion.tolist(), alone.loss)


def test_the_confusion_matrix_counts_every_image_once(run: Path) -> None:
    data = load_dataset("shapes", limit_train=1, limit_test=100)
    trained = load(run)
    result = evaluate(trained, data.test, np.arange(10, dtype=np.int32), SingleCommunicator())
    predicted = trained.logits(data.test.images).argmax(axis=1)
    expected = [
        [int(((data.test.labels == t) & (predicted == p)).sum()) for p in range(10)]
        for t in range(10)
    ]
    assert result.confusion.tolist() == expected
    assert result.accuracy == (predicted == data.test.labels).mean()
    assert sum(images for _, images, _ in result.by_class()) == 100


def test_classes_are_matched_by_name(run: Path) -> None:
    """A data set may hold some of the classes, in another order."""
    data = load_dataset("shapes", limit_train=1, limit_test=100)
    trained = load(run)
    chosen = (7, 2)
    numbers = label_numbers(trained, [trained.classes[c] for c in chosen], "own")
    assert numbers.tolist() == list(chosen)
    keep = np.isin(data.test.labels, chosen)
    labels = np.array([chosen.index(x) for x in data.test.labels[keep]], np.int32)
    some = ImageSet(data.test.images[keep], labels)
    result = evaluate(trained, some, numbers, SingleCommunicator())
    whole = evaluate(trained, data.test, np.arange(10, dtype=np.int32), SingleCommunicator())
    for c in range(10):
        expected = whole.confusion[c].tolist() if c in chosen else [0] * 10
        assert result.confusion[c].tolist() == expected
    with pytest.raises(ConfigError, match="has a class 'unicorn' that the model does not know"):
        label_numbers(trained, ["unicorn"], "data set own")


def test_large_images_get_small_batches() -> None:
    assert batch_size((3, 32, 32)) == 64
    assert batch_size((3, 224, 224)) == 10
    assert batch_size((3, 4000, 4000)) == 1


def test_the_command_writes_a_table_json_and_a_plot(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = tmp_path / "new folder" / "figures.json"
    assert main(["evaluate", str(run), "--limit-test", "30", "--json", str(wanted)]) == 0
    table = capsys.readouterr().out
    content = json.loads(wanted.read_text())
    summary = json.loads((run / "summary.json").read_text())
    assert content["accuracy"] == summary["best_accuracy"]  # of the same 30 images
    assert content == json.loads((run / "evaluation" / "evaluation.json").read_text())
    assert sum(map(sum, content["confusion"])) == content["images"] == 30
    assert [one["correct"] for one in content["classes"]] == [
        row[i] for i, row in enumerate(content["confusion"])
    ]
    assert f"{content['accuracy']:.2%}" in table and content["classes"][0]["name"] in table
    assert (run / "evaluation" / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_only_the_plot_is_missing(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("edgeddl.inference.confusion_plot", "edgeddl.report.drawing"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    arguments = ["evaluate", str(run), "--limit-test", "5", "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert "confusion.png is not written" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["evaluation.json"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--dataset", "nothing"], "unknown data set 'nothing'"),
        (["--dataset", "cifar10", "--data-dir", "absent"], "absent"),
        (["--limit-test", "0"], "--limit-test must be"),
        (["--json", "."], "--json . cannot be written"),
    ],
)
def test_wrong_options(
    run: Path,
    options: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["evaluate", str(run), *options, "--output", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_a_missing_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tmp_path / "absent")]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / "absent") in said and "give a run folder" in said
