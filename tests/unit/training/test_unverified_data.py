"""Data that matches no published checksum is named as such, at the start and at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeddl.comm.local import run_ranks
from edgeddl.config import TrainConfig
from edgeddl.data import cifar10
from edgeddl.data.images import Images
from edgeddl.training.banner import render_banner
from edgeddl.training.startup import prepare_run
from tests.unit.data import cifar_files
from tests.unit.training.training_runs import OPTIONS, train

WORDS = "contents not verified"


@pytest.fixture(params=[False, True], ids=["unverified", "verified"])
def cifar10_folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, bool]:
    """Files of 20 images, and whether they count as verified."""
    load = cifar10.load_cifar10

    def load_small(places: list[Path]) -> Images:
        return load(places, cifar_files.LAYOUT)._replace(verified=request.param)

    monkeypatch.setattr(cifar10, "load_cifar10", load_small)
    return cifar_files.write_binary(tmp_path / "data"), request.param


def test_the_summary(
    tmp_path: Path, cifar10_folder: tuple[Path, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir, verified = cifar10_folder
    train(tmp_path / "run", dataset="cifar10", data_dir=data_dir, limit_test=None, epochs=1)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count(WORDS) == (0 if verified else 2)  # banner and summary
    written = json.loads((tmp_path / "run/summary.json").read_text())
    assert written["data_verified"] is verified


def test_the_banner(tmp_path: Path, cifar10_folder: tuple[Path, bool]) -> None:
    data_dir, verified = cifar10_folder
    options = {"dataset": "cifar10", "data_dir": data_dir, "run_dir": tmp_path / "run"}
    config = TrainConfig(**OPTIONS | options)
    (banner,) = run_ranks(
        1, lambda one: render_banner(prepare_run(config, one), [("host", "cpu", 1)])
    )
    line = next(line for line in banner.splitlines() if line.startswith("  data "))
    assert line.endswith("test images" if verified else f"test images, {WORDS}")
