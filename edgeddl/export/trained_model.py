"""A trained model, read from a run folder or a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeddl import registry
from edgeddl.chainer_compat import chainer
from edgeddl.errors import CheckpointError
from edgeddl.models import build_model
from edgeddl.registry import DATASETS
from edgeddl.training.checkpoint import BEST_NAME, CheckpointStore, read_checkpoint
from edgeddl.training.parameters import named_parameters
from edgeddl.training.run_folder import locate
from edgeddl.training.statistics import RunningStatistics


@dataclass(frozen=True, eq=False)
class TrainedModel:
    model: chainer.Chain
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    mean: np.ndarray
    std: np.ndarray


def load(source: Path) -> TrainedModel:
    """The best model of a run, or else its latest; or the model of a checkpoint."""
    folder, path = locate(source, "export")
    if path is None:
        assert folder is not None
        best = folder.checkpoints / BEST_NAME
        latest = None if best.is_file() else CheckpointStore(folder.checkpoints, 1).latest()
        path = latest[0] if latest else best
    checkpoint = read_checkpoint(path)
    options = checkpoint.meta["options"]
    data = registry.load("dataset", DATASETS[options["dataset"]])()
    image_shape = (3, 32, 32)
    model = build_model(options["model"], stem=options["stem"], classes=len(data.classes))
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        model(np.zeros((1, *image_shape), np.float32))  # initialises parameters without a shape
    targets = {
        f"parameters/{name}": parameter.array for name, parameter in named_parameters(model).items()
    }
    statistics = RunningStatistics(model).arrays()
    targets |= {f"statistics/{name}": array for name, array in statistics.items()}
    for name, array in targets.items():
        if name not in checkpoint.arrays or checkpoint.arrays[name].shape != array.shape:
            raise CheckpointError(f"checkpoint {path} does not fit the model: {name}")
        array[...] = checkpoint.arrays[name]
    return TrainedModel(
        model,
        data.classes,
        image_shape,
        np.array(data.mean, np.float32),
        np.array(data.std, np.float32),
    )
