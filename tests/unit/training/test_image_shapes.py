"""Training on images of any size and number of channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeddl.data.packing import PackOptions, pack_folder
from tests.unit.data.pictures import write_folder
from tests.unit.training.test_equivalence import latest_arrays
from tests.unit.training.training_runs import train

ALL = {"limit_train": None, "limit_test": None, "batch_size": 8}


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("model", "stem"), [("resnet9", "cifar"), ("resnet18", "imagenet")])
def test_channels_and_sizes(tmp_path: Path, model: str, stem: str, channels: int) -> None:
    write_folder(tmp_path / "in", 6)
    options = PackOptions(image_size=(40, 72), channels=channels)
    path = pack_folder(tmp_path / "in", tmp_path / "pack", options)
    summary = train(
        tmp_path / "run", dataset=f"pack:{path}", model=model, stem=stem, epochs=1, **ALL
    )
    assert summary["images"] == 15 and all(np.isfinite(summary["step_losses"]))


def test_a_folder_of_pictures_is_learnt(tmp_path: Path) -> None:
    write_folder(tmp_path / "in", 30)
    summary = train(
        tmp_path / "run",
        dataset=f"folder:{tmp_path / 'in'}",
        data_dir=tmp_path / "cache",
        image_size="16",
        model="resnet9",
        epochs=4,
        **ALL,
    )
    assert summary["final_accuracy"] == 1


def test_resumed_training_on_large_images_is_identical(tmp_path: Path) -> None:
    options = {
        "dataset": "shapes",
        "image_size": "72x80",
        "limit_train": 24,
        "limit_test": 4,
        "batch_size": 4,
        "epochs": 2,
        "model": "tests.models:TinyNet",
    }
    train(tmp_path / "whole", **options)
    train(tmp_path / "parts", max_steps=4, **options)
    train(tmp_path / "parts", resume=str(tmp_path / "parts"), **options)
    whole, parts = latest_arrays(tmp_path / "whole"), latest_arrays(tmp_path / "parts")
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name], err_msg=name)
