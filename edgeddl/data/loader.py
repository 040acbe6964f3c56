"""Batches for training, prepared by a thread while the step before is computed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt

from edgeddl.data.augmentation import Augmentation, Augmenter
from edgeddl.data.images import (
    IMAGE_SIZE,
    ROW,
    Float32s,
    ImageSet,
    Int32s,
    Normaliser,
    channels_last,
)
from edgeddl.data.prefetch import Prefetcher
from edgeddl.data.sharding import epoch_permutation, split_evenly

_ROOMS = 2  # one step in use, one being prepared


@dataclass(frozen=True, eq=False)
class StepBatch:
    """What one rank computes in one step of training.

    images: how many images the step takes over all ranks, from position first_image of the epoch.
    micro_batches: this rank's share, (x, t) with x float32 (n, 3, 32, 32), channels last in memory;
        valid until the next StepBatch is asked for. None when there are fewer images than ranks.
    ends_epoch: whether it is the last step of its epoch.
    """

    epoch: int
    first_image: int
    images: int
    micro_batches: list[tuple[Float32s, Int32s]]
    ends_epoch: bool

    @property
    def own_images(self) -> int:
        """How many images this rank takes."""
        return sum(len(t) for _, t in self.micro_batches)


@dataclass(frozen=True, eq=False)
class _Room:
    """Memory for one rank's share of a step."""

    rows: Float32s
    labels: Int32s

    @classmethod
    def allocate(cls, capacity: int) -> _Room:
        rows = np.empty((capacity, IMAGE_SIZE, ROW), dtype=np.float32)
        return cls(rows, np.empty(capacity, dtype=np.int32))


class TrainLoader:
    """Hands one rank its share of every step.

    A step takes batch_size * accumulation * size consecutive images of the epoch's order; the last
    step of an epoch takes what is left. They are split evenly over the ranks, and a rank's share
    into micro-batches of at most batch_size.
    """

    def __init__(
        self,
        images: ImageSet,
        mean: Float32s,
        std: Float32s,
        *,
        rank: int = 0,
        size: int = 1,
        batch_size: int,
        accumulation: int = 1,
        seed: int = 0,
        augmentation: Augmentation,
    ) -> None:
        self._images = images
        self._rank, self._size = rank, size
        self._batch_size = batch_size
        self._seed = seed
        self.global_batch = batch_size * accumulation * size
        self._augmenter = Augmenter(
            augmentation, Normaliser(mean, std), seed=seed, capacity=min(batch_size, len(images))
        )
        capacity = min(batch_size * accumulation, len(images))
        self._rooms = [_Room.allocate(capacity) for _ in range(_ROOMS)]
        self._prefetcher: Prefetcher[StepBatch] | None = None
        self._prepared_from: tuple[int, int] | None = None

    def steps(self, epoch: int, first_image: int = 0) -> Iterator[StepBatch]:
        """The steps of an epoch from a position on; their preparation starts with this call.

        The thread goes on into the next epoch, so that its first step is ready when asked for.
        """
        if first_image < len(self._images):
            self._prepare_from(epoch, first_image)
        return self._take_steps(epoch, first_image)

    def close(self) -> None:
        """End the thread."""
        if self._prefetcher is not None:
            self._prefetcher.close()
        self._prefetcher = self._prepared_from = None

    def __enter__(self) -> TrainLoader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare_from(self, epoch: int, first_image: int) -> None:
        if self._prepared_from != (epoch, first_image):
            self.close()
            self._prefetcher = Prefetcher(
                self._make_steps(epoch, first_image), rooms=_ROOMS, name="edgeddl-loader"
            )
            self._prepared_from = (epoch, first_image)

    def _take_steps(self, epoch: int, first_image: int) -> Iterator[StepBatch]:
        while first_image < len(self._images):
            if self._prefetcher is None or self._prepared_from != (epoch, first_image):
                raise RuntimeError("the loader was closed, or another iteration has begun")
            step = self._take()
            first_image += step.images
            yield step

    def _take(self) -> StepBatch:
        assert self._prefetcher is not None
        try:
            step = self._prefetcher.take()
        except BaseException:
            self.close()
            raise
        stop = step.first_image + step.images
        self._prepared_from = (step.epoch + 1, 0) if step.ends_epoch else (step.epoch, stop)
        return step

    def _make_steps(self, epoch: int, first_image: int) -> Iterator[StepBatch]:
        """Runs in the thread: one step after another, without an end."""
        rooms = itertools.cycle(self._rooms)
        count = len(self._images)
        while True:
            order = epoch_permutation(self._seed, epoch, count)
            while first_image < count:
                images = min(self.global_batch, count - first_image)
                start, stop = split_evenly(images, self._size, self._rank)
                share = np.arange(first_image + start, first_image + stop)
                micro_batches = self._fill(next(rooms), epoch, share, order[share])
                ends_epoch = first_image + images == count
                yield StepBatch(epoch, first_image, images, micro_batches, ends_epoch)
                first_image += images
            epoch, first_image = epoch + 1, 0

    def _fill(
        self,
        room: _Room,
        epoch: int,
        positions: npt.NDArray[np.int64],
        indices: npt.NDArray[np.int64],
    ) -> list[tuple[Float32s, Int32s]]:
        """Prepare the images at these indices, which have these positions in the epoch."""
        micro_batches = []
        for start in range(0, len(indices), self._batch_size):
            part = slice(start, min(start + self._batch_size, len(indices)))
            rows, labels = room.rows[part], room.labels[part]
            pixels = self._images.images[indices[part]]
            self._augmenter.write(pixels, epoch, positions[part], rows)
            labels[:] = self._images.labels[indices[part]]
            micro_batches.append((channels_last(rows), labels))
        return micro_batches
