"""What a checkpoint says about its model, so that it can be used without the training options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeddl.config import FITS, Fit, TrainConfig
from edgeddl.data import Dataset, cifar10, shapes
from edgeddl.data.images import Float32s, ImageShape
from edgeddl.errors import CheckpointError, shown

KEY = "model"  # in the description of a checkpoint


@dataclass(frozen=True, eq=False)
class ModelDescription:
    """How to build the model and how to prepare pictures for it.

    name, stem: the values of --model and --stem.
    mean, std: per channel, as fractions of 255.
    fit: whether pictures of another shape are cropped or padded.
    """

    name: str
    stem: str
    classes: tuple[str, ...]
    image_shape: ImageShape
    mean: Float32s
    std: Float32s
    fit: Fit = "crop"

    @classmethod
    def of_run(cls, config: TrainConfig, dataset: Dataset) -> ModelDescription:
        return cls(
            config.model,
            config.stem,
            dataset.classes,
            dataset.image_shape,
            dataset.mean,
            dataset.std,
            dataset.fit,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "stem": self.stem,
            "classes": list(self.classes),
            "image_shape": list(self.image_shape),
            "mean": self.mean.tolist(),
            "std": self.std.tolist(),
            "fit": self.fit,
        }


def read_model_description(meta: Mapping[str, Any], origin: str) -> ModelDescription:
    """The description in a checkpoint; derived from the training options if it has none."""
    try:
        if KEY in meta:
            return _checked(ModelDescription(**_arguments(meta[KEY])))
        return _checked(_derived(meta["options"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{origin} does not describe its model ({type(error).__name__}: {shown(str(error))})",
            hint="give a checkpoint that edgeddl has written",
        ) from None


def _arguments(content: Mapping[str, Any]) -> dict[str, Any]:
    channels, height, width = map(int, content["image_shape"])
    return {
        **{name: content[name] for name in ("name", "stem", "fit")},
        "classes": tuple(map(str, content["classes"])),
        "image_shape": (channels, height, width),
        "mean": np.array(content["mean"], np.float32),
        "std": np.array(content["std"], np.float32),
    }


def _derived(options: Mapping[str, Any]) -> ModelDescription:
    """For checkpoints of version 0.2 and earlier, which knew two data sets of 32 x 32 pixels."""
    source = {"cifar10": cifar10, "shapes": shapes}[options["dataset"]]
    return ModelDescription(
        name=str(options["model"]),
        stem=str(options["stem"]),
        classes=source.CLASSES,
        image_shape=(3, 32, 32),
        mean=np.array(source.MEAN, np.float32),
        std=np.array(source.STD, np.float32),
    )


def _checked(description: ModelDescription) -> ModelDescription:
    channels = description.image_shape[0]
    if description.mean.shape != (channels,) or description.std.shape != (channels,):
        raise ValueError("mean and std do not have one value per channel")
    if min(description.image_shape) < 1 or not description.classes:
        raise ValueError("image_shape or classes is empty")
    if description.fit not in FITS:
        raise ValueError(f"fit is {description.fit!r}, expected one of {', '.join(FITS)}")
    return description
