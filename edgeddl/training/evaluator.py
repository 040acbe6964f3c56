"""Exact evaluation: every test image counts once, with any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgeddl.chainer_compat import F, chainer
from edgeddl.comm.communicator import Communicator
from edgeddl.data import Dataset, normalise
from edgeddl.data.sharding import split_by_speed
from edgeddl.training.statistics import RunningStatistics, averaged_over_ranks

# Without backward, few activations are kept, so larger batches fit than in training and run faster.
BATCH_SIZE = 64


@dataclass(frozen=True)
class Evaluation:
    loss: float
    accuracy: float


def evaluate(
    model: chainer.Chain, dataset: Dataset, communicator: Communicator, shares: Sequence[int]
) -> Evaluation:
    """Loss and accuracy over the whole test set, with statistics averaged over ranks.

    Ranks divide the test images in the proportions of their shares of a training step.
    """
    images_of = split_by_speed(len(dataset.test), shares)
    start = sum(images_of[: communicator.rank])
    stop = start + images_of[communicator.rank]
    totals = np.zeros(3, np.float64)  # loss, right answers, images
    with (
        averaged_over_ranks(RunningStatistics(model), communicator),
        chainer.using_config("train", False),
        chainer.no_backprop_mode(),
    ):
        for first in range(start, stop, BATCH_SIZE):
            totals += _batch_totals(model, dataset, slice(first, min(first + BATCH_SIZE, stop)))
    communicator.allreduce(totals)
    loss, right, images = totals
    return Evaluation(loss=loss / images, accuracy=right / images)


def _batch_totals(model: chainer.Chain, dataset: Dataset, part: slice) -> np.ndarray:
    labels = dataset.test.labels[part]
    logits = model(normalise(dataset.test.images[part], dataset.mean, dataset.std))
    loss = float(F.softmax_cross_entropy(logits, labels).array) * len(labels)
    right = int((logits.array.argmax(axis=1) == labels).sum())
    return np.array([loss, right, len(labels)], np.float64)
