"""Running statistics of batch normalisation: separate in training, averaged in evaluation.

Every rank's statistics follow its own batches. Training does not read them, so ranks need not
synchronise them in each step; evaluation and checkpoints use the mean over ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.comm.communicator import Communicator


def persistent_numbers(model: chainer.Chain) -> dict[str, np.ndarray]:
    """What Chainer saves of a model besides its parameters: running statistics and counters.

    Only numbers, because checkpoints hold nothing else.
    """
    values = {
        f"{path.lstrip('/')}/{name}".lstrip("/"): np.asarray(getattr(link, name))
        for path, link in model.namedlinks()
        for name in sorted(link._persistent)
    }
    return {name: value for name, value in values.items() if value.dtype.kind in "biufc"}


class RunningStatistics:
    """All floating-point arrays of a model that are not parameters."""

    def __init__(self, model: chainer.Chain) -> None:
        self._model = model

    def arrays(self) -> dict[str, np.ndarray]:
        """The live arrays by name, e.g. "stem/bn/avg_mean"."""
        return {
            f"{path.lstrip('/')}/{name}": value
            for path, link in self._model.namedlinks()
            for name in sorted(link._persistent)
            if isinstance(value := getattr(link, name), np.ndarray) and value.dtype.kind == "f"
        }

    def flat(self) -> np.ndarray:
        """A copy of all of them in one flat array."""
        parts = [array.ravel() for array in self.arrays().values()]
        return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)

    def set_flat(self, values: np.ndarray) -> None:
        for name, part in self.split(values).items():
            self.arrays()[name][...] = part

    def split(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Split flat values by name; leading axes, such as one for ranks, are kept."""
        parts, start = {}, 0
        for name, array in self.arrays().items():
            part = values[..., start : start + array.size]
            parts[name] = part.reshape(*values.shape[:-1], *array.shape)
            start += array.size
        return parts


@contextmanager
def averaged_over_ranks(
    statistics: RunningStatistics, communicator: Communicator
) -> Iterator[None]:
    """Within the block, the model has the mean statistics of all ranks; after it, its own again.

    So evaluation does not change the state of a run, and may happen at any time.
    """
    own = statistics.flat()
    total = own.astype(np.float64)
    communicator.allreduce(total)
    statistics.set_flat((total / communicator.size).astype(np.float32))
    try:
        yield
    finally:
        statistics.set_flat(own)
