"""A trained model with its parameters, classes and normalisation, read from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from edgeddl.chainer_compat import F, chainer
from edgeddl.comm.agreement import together
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator
from edgeddl.config import Fit
from edgeddl.data import normalise
from edgeddl.data.images import Float32s, ImageShape, UInt8s
from edgeddl.errors import CheckpointError, ConfigError
from edgeddl.models import build_model
from edgeddl.training.checkpoint import Checkpoint
from edgeddl.training.checkpoint_file import NewerFormatError
from edgeddl.training.model_description import ModelDescription, read_model_description
from edgeddl.training.parameters import named_parameters
from edgeddl.training.run_folder import read_best
from edgeddl.training.statistics import RunningStatistics


class Score(NamedTuple):
    """A class and its probability, from 0 to 1."""

    name: str
    probability: float


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model that is ready to be used.

    model: the chainer.Chain with its parameters and running statistics. Call it in Chainer's test
        mode (`chainer.using_config("train", False)`); the methods here do that.
    origin: the checkpoint it was read from.
    meta: the description in that checkpoint, with the options of the run.
    """

    model: chainer.Chain
    description: ModelDescription
    origin: Path
    meta: dict[str, Any]

    @property
    def classes(self) -> tuple[str, ...]:
        return self.description.classes

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height and width of an image."""
        return self.description.image_shape

    @property
    def mean(self) -> Float32s:
        return self.description.mean

    @property
    def std(self) -> Float32s:
        return self.description.std

    @property
    def fit(self) -> Fit:
        return self.description.fit

    def read_picture(self, source: Path | bytes | BinaryIO) -> UInt8s:
        """A picture file as an image (height, width, channels) of the model's shape."""
        from edgeddl.data.picture import decode  # imports Pillow, which arrays do not need

        channels, height, width = self.image_shape
        return decode(source, (height, width), self.fit, channels)

    def logits(self, images: UInt8s) -> Float32s:
        """Scores (n, classes) of images (n, height, width, channels) of type uint8."""
        channels, height, width = self.image_shape
        if images.dtype != np.uint8 or images.shape[1:] != (height, width, channels):
            raise ConfigError(
                f"the model takes uint8 images of shape (n, {height}, {width}, {channels}),"
                f" not {images.dtype} of shape {images.shape}",
                hint="read_picture reads a picture file in this shape",
            )
        return _forward(self.model, normalise(images, self.mean, self.std))

    def probabilities(self, images: UInt8s) -> Float32s:
        """Probabilities (n, classes) of images (n, height, width, channels) of type uint8."""
        return F.softmax(self.logits(images)).array

    def predict(self, images: UInt8s, top: int = 1) -> list[list[Score]]:
        """The `top` most probable classes of each image, the best first."""
        return [best_scores(self.classes, row, top) for row in self.probabilities(images)]


def best_scores(classes: Sequence[str], probabilities: Float32s, top: int) -> list[Score]:
    """The `top` most probable classes; of equal ones, the first in the list of classes."""
    order = np.argsort(-probabilities, kind="stable")[:top]
    return [Score(classes[index], float(probabilities[index])) for index in order]


def load(source: str | Path, communicator: Communicator | None = None) -> TrainedModel:
    """Load a trained model from a run folder (its best checkpoint, or else its latest) or a file.

    With a communicator the call is collective: rank 0 reads, because boards do not share a disk,
    and sends the model to the other ranks.
    """
    communicator = communicator or SingleCommunicator()
    found = together(communicator, lambda: _read(Path(source)) if communicator.rank == 0 else None)
    origin, meta = communicator.allgather(found and (found[0], found[1].meta))[0]
    arrays = found and found[1].arrays
    trained = together(communicator, lambda: _build(origin, meta, arrays))
    for array in _arrays(trained.model).values():
        values = array.ravel()  # a copy: parameters have their own memory order
        communicator.broadcast(values)
        array[...] = values.reshape(array.shape)
    return trained


def _read(source: Path) -> tuple[Path, Checkpoint]:
    try:
        return read_best(source, "model")
    except NewerFormatError:
        raise
    except CheckpointError as error:
        raise CheckpointError(
            error.message,
            hint="give a run folder such as runs/resnet18-cifar10, or a checkpoint file in it",
        ) from error


def _build(
    origin: Path, meta: dict[str, Any], arrays: Mapping[str, np.ndarray] | None
) -> TrainedModel:
    description = read_model_description(meta, str(origin))
    classes = len(description.classes)
    model = build_model(
        description.name,
        stem=description.stem,
        classes=classes,
        in_channels=description.image_shape[0],
    )
    # initialises parameters without a shape
    logits = _forward(model, np.zeros((1, *description.image_shape), np.float32))
    if logits.shape != (1, classes):
        raise CheckpointError(
            f"model {description.name} returns an array of shape {logits.shape} for one image of"
            f" {origin}, expected (1, {classes})",
            hint="use the model's code as it was when the run was trained",
        )
    if arrays is not None:
        _fill(model, arrays, str(origin))
    return TrainedModel(model, description, origin, meta)


def _forward(model: chainer.Chain, x: Float32s) -> Float32s:
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return model(x).array


def _arrays(model: chainer.Chain) -> dict[str, np.ndarray]:
    """The live parameters and running statistics, by their names in a checkpoint."""
    parameters = named_parameters(model).items()
    statistics = RunningStatistics(model).arrays().items()
    return {f"parameters/{name}": parameter.array for name, parameter in parameters} | {
        f"statistics/{name}": array for name, array in statistics
    }


def _fill(model: chainer.Chain, stored_arrays: Mapping[str, np.ndarray], origin: str) -> None:
    for name, array in _arrays(model).items():
        stored = stored_arrays.get(name)
        if stored is None or stored.shape != array.shape:
            found = "absent" if stored is None else f"of shape {stored.shape}"
            raise CheckpointError(
                f"{origin} does not fit its model: {name} is {found}, expected {array.shape}",
                hint="use the model's code as it was when the run was trained",
            )
        array[...] = stored
