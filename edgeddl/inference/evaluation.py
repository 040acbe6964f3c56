"""Exact evaluation of a trained model, with the same result for any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeddl.chainer_compat import F
from edgeddl.comm.communicator import Communicator
from edgeddl.data import ImageSet, split_evenly
from edgeddl.data.images import ImageShape
from edgeddl.errors import ConfigError
from edgeddl.inference.trained_model import TrainedModel
from edgeddl.terminal import ProgressBar

# As in the evaluation during training (training/evaluator.py).
LARGEST_BATCH = 64
# Limits the activations of large images: 10 images of 224 x 224 pixels. Their largest array in
# ResNet-18 (64 channels of 112 x 112) then has 32 MB.
BATCH_PIXELS = 2**19


@dataclass(frozen=True, eq=False)
class Result:
    """confusion: number of images by true class (row) and predicted class (column)."""

    classes: tuple[str, ...]
    confusion: npt.NDArray[np.int64]
    loss: float

    @property
    def images(self) -> int:
        return int(self.confusion.sum())

    @property
    def correct(self) -> int:
        return int(self.confusion.trace())

    @property
    def accuracy(self) -> float:
        return self.correct / self.images

    def by_class(self) -> list[tuple[str, int, int]]:
        """Name, images and correct predictions of each class."""
        totals, correct = self.confusion.sum(axis=1), self.confusion.diagonal()
        return [
            (name, int(images), int(right))
            for name, images, right in zip(self.classes, totals, correct, strict=True)
        ]


def batch_size(image_shape: ImageShape) -> int:
    _, height, width = image_shape
    return min(LARGEST_BATCH, max(1, BATCH_PIXELS // (height * width)))


def label_numbers(trained: TrainedModel, classes: Sequence[str], origin: str) -> np.ndarray:
    """The model's number of each class of a data set; a model may know more classes."""
    if unknown := [name for name in classes if name not in trained.classes]:
        known = ", ".join(trained.classes[:10]) + (", ..." if len(trained.classes) > 10 else "")
        raise ConfigError(
            f"{origin} has a class {unknown[0]!r} that the model does not know",
            hint=f"use a data set with the model's classes: {known}",
        )
    return np.array([trained.classes.index(name) for name in classes], np.int32)


def evaluate(
    trained: TrainedModel, images: ImageSet, numbers: np.ndarray, communicator: Communicator
) -> Result:
    """Collective: the confusion matrix and the mean loss over all images.

    `numbers` translates labels (`label_numbers`). Ranks share the batches, not the images: a batch
    holds the same images for any number of ranks, because kernels may round differently in batches
    of another size. Losses are added in the order of the batches for the same reason.
    """
    size = batch_size(trained.image_shape)
    batches = -(-len(images) // size)
    own = range(*split_evenly(batches, communicator.size, communicator.rank))
    classes = len(trained.classes)
    confusion = np.zeros((classes, classes), np.float64)  # exact up to 2**53
    losses = []
    shown = ProgressBar(own, "evaluating", disable=communicator.rank != 0, leave=False)
    for batch in shown:
        part = slice(batch * size, (batch + 1) * size)
        labels = numbers[images.labels[part]]
        logits = trained.logits(images.images[part])
        losses.append(float(F.softmax_cross_entropy(logits, labels).array) * len(labels))
        np.add.at(confusion, (labels, logits.argmax(axis=1)), 1)
    communicator.allreduce(confusion)
    loss = sum(loss for of_rank in communicator.allgather(losses) for loss in of_rank)
    return Result(trained.classes, confusion.astype(np.int64), loss / len(images))
