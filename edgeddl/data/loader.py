"""Prepares training batches in a thread while the previous step is computed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt

from edgeddl.data.augmentation import Augmentation, Augmenter
from edgeddl.data.images import Float32s, ImageSet, ImageShape, Int32s, Normaliser, as_pixels
from edgeddl.data.prefetch import Prefetcher
from edgeddl.data.sharding import epoch_permutation, split_by_speed, split_evenly

_BUFFERS = 2  # one step in use, one being prepared


@dataclass(frozen=True, eq=False)
class StepBatch:
    """The images of one rank in one training step.

    images: number of images of the step over all ranks, from position first_image of the epoch.
    micro_batches: this rank's share as pairs (x, t). x is float32 of shape (n, channels, height,
        width) with channels last in memory. Valid until the next StepBatch is requested. Empty if
        the step has fewer images than ranks.
    ends_epoch: whether this is the last step of the epoch.
    """

    epoch: int
    first_image: int
    images: int
    micro_batches: list[tuple[Float32s, Int32s]]
    ends_epoch: bool

    @property
    def own_images(self) -> int:
        """Number of images of this rank."""
        return sum(len(t) for _, t in self.micro_batches)


@dataclass(frozen=True, eq=False)
class _Buffer:
    """Memory for one rank's share of a step."""

    rows: Float32s
    labels: Int32s

    @classmethod
    def allocate(cls, capacity: int, image_shape: ImageShape) -> _Buffer:
        channels, height, width = image_shape
        rows = np.empty((capacity, height, width * channels), dtype=np.float32)
        return cls(rows, np.empty(capacity, dtype=np.int32))


class TrainLoader:
    """Provides one rank's share of every step.

    shares: images per rank in a full step. A step takes their sum, as consecutive images in the
        order of the epoch. The last step of an epoch takes the rest, in the same proportions.
    batch_size, accumulation: a rank's share is split into micro-batches of nearly equal size. Their
        number is the smallest that keeps them within batch_size, but at most `accumulation`.
    threads: how many resize large images.
    """

    def __init__(
        self,
        images: ImageSet,
        mean: Float32s,
        std: Float32s,
        *,
        rank: int = 0,
        shares: Sequence[int],
        batch_size: int,
        accumulation: int = 1,
        seed: int = 0,
        augmentation: Augmentation,
        threads: int = 1,
    ) -> None:
        self._images = images
        self._rank = rank
        self._batch_size = batch_size
        self._accumulation = accumulation
        self._seed = seed
        normaliser = Normaliser(mean, std, images.image_shape)
        self._augmenter = Augmenter(
            augmentation,
            normaliser,
            seed=seed,
            capacity=min(batch_size, len(images)),
            threads=threads,
        )
        self._prefetcher: Prefetcher[StepBatch] | None = None
        self._prepared_from: tuple[int, int] | None = None
        self.set_shares(shares)

    def set_shares(self, shares: Sequence[int]) -> None:
        """Change the split from the next step on; prepared steps are discarded.

        Call this on all ranks between the same two steps. The step in use stays valid: new buffers
        are allocated.
        """
        position = self._prepared_from
        self.close()
        self._shares = tuple(shares)
        capacity = min(shares[self._rank], len(self._images))
        shape = self._images.image_shape
        self._buffers = [_Buffer.allocate(capacity, shape) for _ in range(_BUFFERS)]
        if position is not None:
            self._prepare_from(*position)

    def steps(self, epoch: int, first_image: int = 0) -> Iterator[StepBatch]:
        """The steps of an epoch from a position on; this call starts their preparation.

        The thread continues with the next epoch, so that its first step is ready in time.
        """
        if first_image < len(self._images):
            self._prepare_from(epoch, first_image)
        return self._take_steps(epoch, first_image)

    def close(self) -> None:
        """Stop the thread."""
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
        self._augmenter.close()

    def _prepare_from(self, epoch: int, first_image: int) -> None:
        if self._prepared_from != (epoch, first_image):
            self.close()
            self._prefetcher = Prefetcher(
                self._make_steps(epoch, first_image), buffers=_BUFFERS, name="edgeddl-loader"
            )
            self._prepared_from = (epoch, first_image)

    def _take_steps(self, epoch: int, first_image: int) -> Iterator[StepBatch]:
        while first_image < len(self._images):
            if self._prefetcher is None or self._prepared_from != (epoch, first_image):
                raise RuntimeError("the loader was closed or another iteration was started")
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
        """Generate steps without end; runs in the thread."""
        buffers = itertools.cycle(self._buffers)
        count = len(self._images)
        while True:
            order = epoch_permutation(self._seed, epoch, count)
            while first_image < count:
                images = min(sum(self._shares), count - first_image)
                shares = split_by_speed(images, self._shares)
                start = first_image + sum(shares[: self._rank])
                share = np.arange(start, start + shares[self._rank])
                micro_batches = self._fill(next(buffers), epoch, share, order[share])
                ends_epoch = first_image + images == count
                yield StepBatch(epoch, first_image, images, micro_batches, ends_epoch)
                first_image += images
            epoch, first_image = epoch + 1, 0

    def _fill(
        self,
        buffer: _Buffer,
        epoch: int,
        positions: npt.NDArray[np.int64],
        indices: npt.NDArray[np.int64],
    ) -> list[tuple[Float32s, Int32s]]:
        """Prepare the images with these indices, at these positions of the epoch."""
        for start in range(0, len(indices), self._batch_size):
            part = slice(start, min(start + self._batch_size, len(indices)))
            pixels = self._images.images[indices[part]]
            self._augmenter.write(pixels, epoch, positions[part], buffer.rows[part])
            buffer.labels[part] = self._images.labels[indices[part]]
        x = as_pixels(buffer.rows, self._images.image_shape[0]).transpose(0, 3, 1, 2)
        return [(x[part], buffer.labels[part]) for part in self._micro_batches(len(indices))]

    def _micro_batches(self, images: int) -> list[slice]:
        parts = min(-(-images // self._batch_size), self._accumulation)
        return [slice(*split_evenly(images, parts, index)) for index in range(parts)]
