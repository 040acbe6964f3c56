"""edgeddl predict: pictures in, classes out; bad pictures are named."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgeddl.__main__ import main
from edgeddl.data import load_dataset
from edgeddl.inference import TrainedModel, load
from tests.support import REPOSITORY
from tests.unit.data.pictures import write_bomb, write_picture
from tests.unit.inference.fake_camera import FakeCamera
from tests.unit.training.training_runs import train

IMAGES = load_dataset("shapes", limit_train=1, limit_test=5).test.images


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(folder)
    return folder


@pytest.fixture(scope="module")
def trained(run: Path) -> TrainedModel:
    return load(run)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five test images of the data set as PNG, which loses nothing."""
    names = ["a.png", "b c.png", "sub/d.PNG", "sub/é 中.png", "z.png"]
    for name, pixels in zip(names, IMAGES, strict=True):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (tmp_path / "pictures" / "notes.txt").write_text("not a picture")
    return tmp_path / "pictures"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines_of_a_folder(
    run: Path, trained: TrainedModel, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(run), str(folder), "--json", "--top", "10"]) == 0
    out, err = capsys.readouterr()
    expected = trained.probabilities(IMAGES)
    found = lines(out)
    assert [one["picture"] for one in found] == [
        str(folder / name) for name in ("a.png", "b c.png", "sub/d.PNG", "sub/é 中.png", "z.png")
    ]
    for one, row in zip(found, expected, strict=True):
        by_class = {score["class"]: score["probability"] for score in one["predictions"]}
        assert [by_class[name] for name in trained.classes] == pytest.approx(row.tolist(), rel=1e-5)
        values = [score["probability"] for score in one["predictions"]]
        assert values == sorted(values, reverse=True)
    assert "5 pictures in" in err and "img/s" in err


def test_a_table_of_files(
    run: Path, trained: TrainedModel, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(folder / "b c.png"), str(folder / "z.png")]
    assert main(["predict", str(run), *files, "--top", "2"]) == 0
    heading, _, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["picture", "1", "2"]
    for row, name, scores in zip(rows, files, trained.predict(IMAGES[[1, 4]], 2), strict=True):
        assert row.startswith(name)
        for score in scores:
            assert f"{score.name} {score.probability:.2%}" in row


def test_names_on_stdin(
    run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = os.fsdecode(bytes(folder) + b"/\xff.png")  # not UTF-8
    Image.fromarray(IMAGES[0]).save(broken)
    names = b"\n".join([os.fsencode(folder / "a.png"), b"", os.fsencode(broken)])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(names)))
    assert main(["predict", str(run), "-"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(str(folder / "a.png")) and "�.png" in second
    assert first.split("  ")[1:] == second.split("  ")[1:]


def test_bad_pictures_are_named_and_the_others_predicted(
    run: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.jpg"
    text.write_text("hello")
    whole = write_picture(tmp_path / "whole.jpg", size=(300, 300)).read_bytes()
    truncated = tmp_path / "truncated.jpg"
    truncated.write_bytes(whole[: len(whole) // 2])
    bomb = write_bomb(tmp_path / "bomb.png")
    empty = tmp_path / "empty folder"
    empty.mkdir()
    bad = [text, truncated, bomb, empty, tmp_path / "absent.png"]
    words = [str(text), str(folder / "a.png"), *map(str, bad[1:]), str(folder / "z.png")]
    assert main(["predict", str(run), *words, "--json"]) == 2
    out, err = capsys.readouterr()
    found = lines(out)
    assert [one["picture"] for one in found] == words
    assert [word for word, one in zip(words, found, strict=True) if "error" in one] == list(
        map(str, bad)
    )
    for path in bad:
        assert err.count(f"error: {path}") + err.count(f"error: folder {path}") == 1
    assert err.count("hint:") == len(bad) and "Traceback" not in err
    assert "2 pictures in" in err and "5 could not be read" in err


def test_pictures_of_any_size_and_kind(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_picture(tmp_path / "wide.jpg", size=(300, 100))
    write_picture(tmp_path / "alpha.png", colour=(10, 20, 30, 128))
    Image.fromarray(np.zeros((50, 20), np.uint8)).save(tmp_path / "grey.bmp")
    assert main(["predict", str(run), str(tmp_path), "--json"]) == 0
    assert len(lines(capsys.readouterr().out)) == 3


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "there are no pictures to classify"),
        (["a.png", "--camera", "/dev/video0"], "--camera cannot be combined"),
        (["a.png", "--top", "0"], "--top must be at least 1"),
        (["a.png", "--count", "1"], "needs --camera"),
        (["--camera", "/dev/absent"], "--camera /dev/absent does not exist"),
    ],
)
def test_wrong_options(
    run: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(run), *words]) == 2
    out, err = capsys.readouterr()
    assert complaint in err and err.count("error:") == 1 and out == ""


def test_a_picture_in_the_place_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(folder / "a.png"), str(folder / "z.png")]) == 2
    said = capsys.readouterr().err
    assert str(folder / "a.png") in said and "give a run folder" in said


def test_a_camera(
    run: Path,
    trained: TrainedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(stream, "JPEG")
    jpeg = stream.getvalue()
    fake = FakeCamera(tmp_path / "video0", [[jpeg], [b"damaged"], [jpeg], [jpeg]])
    fake.install(monkeypatch)
    assert main(["predict", str(run), "--camera", str(fake.device), "--count", "3"]) == 2
    out, err = capsys.readouterr()
    best = trained.predict(trained.read_picture(jpeg)[None])[0][0]
    assert [line.split("  ")[0][-1] for line in out.splitlines()] == ["1", "3"]
    assert all(f"  {best.name} {best.probability:.2%}" in line for line in out.splitlines())
    assert "frame 2" in err and not fake.is_streaming


def test_as_a_program_with_a_closed_pipe(run: Path, folder: Path) -> None:
    command = f"{sys.executable} -m edgeddl predict '{run}' '{folder}' --json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert len(lines(done.stdout)) == 1 and "Traceback" not in done.stderr
