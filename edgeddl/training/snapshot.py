"""Captures a run in a checkpoint and restores it.

    parameters/NAME         the model as Chainer saves it: parameters; also averaged statistics and
                            counters, only for chainer's load_npz(..., path="parameters/")
    velocity/NAME           the optimizer's momentum
    statistics/NAME         batch normalisation's running statistics, averaged over ranks
    rank_statistics/NAME    the same of every rank, so a resumed run equals an uninterrupted one
    COMPRESSION/...         the state of the gradient exchange, under the value of --compression

With another number of ranks, every rank starts from the averaged statistics. With another
--compression or --compression-rank, the exchange starts from its initial state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.comm.arena import Arena
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import GradientExchange
from edgeddl.config import MODEL_OPTIONS, TrainConfig
from edgeddl.errors import CheckpointError
from edgeddl.optimizers import MomentumSGD
from edgeddl.training.checkpoint import Checkpoint
from edgeddl.training.model_description import KEY, ModelDescription
from edgeddl.training.state import RunState
from edgeddl.training.statistics import RunningStatistics, persistent_numbers

# The options that decide whether a checkpoint's exchange state fits.
EXCHANGE_OPTIONS = ("compression", "compression_rank")


@dataclass(frozen=True)
class Snapshots:
    """Captures and restores one run; both are collective."""

    config: TrainConfig
    model: chainer.Chain
    exchange: GradientExchange
    optimizer: MomentumSGD
    data: str | None  # fingerprint of the images
    description: ModelDescription

    @property
    def arena(self) -> Arena:
        return self.exchange.arena

    @property
    def communicator(self) -> Communicator:
        return self.exchange.communicator

    def capture(self, state: RunState) -> Checkpoint:
        statistics = RunningStatistics(self.model)
        own = statistics.flat()
        by_rank = np.zeros((self.communicator.size, own.size), own.dtype)
        self.communicator.allgather_array(own, by_rank)
        averaged = statistics.split(by_rank.mean(axis=0))
        persistent = persistent_numbers(self.model)
        persistent |= {name.lstrip("/"): value for name, value in averaged.items()}
        arrays = {
            **_prefixed("parameters", self._views(self.arena.parameters)),
            **_prefixed("parameters", persistent),
            **_prefixed("velocity", self._views(self.optimizer.velocity)),
            **_prefixed("statistics", averaged),
            **_prefixed("rank_statistics", statistics.split(by_rank)),
            **_prefixed(self.config.compression, self.exchange.state()),
        }
        meta = {
            "state": state.to_json(),
            "options": self.config.to_json(),
            "ranks": self.communicator.size,
            "data": self.data,
            KEY: self.description.to_json(),
        }
        return Checkpoint(arrays=arrays, meta=meta)

    def parameter_norm(self) -> float:
        """The Euclidean norm of all parameters, which is finite if all of them are."""
        return float(np.linalg.norm(self.arena.parameters.astype(np.float64)))

    def check(self, checkpoint: Checkpoint, origin: str) -> None:
        """On rank 0: raise unless this run can continue from this checkpoint."""
        meta = checkpoint.meta
        ranks, options = meta.get("ranks"), meta.get("options")
        if type(ranks) is not int or ranks < 1 or not isinstance(options, dict):
            raise CheckpointError(f"{origin} does not describe a training run")
        RunState.from_json(meta.get("state"), origin)
        expected = self._expected_arrays(ranks, with_exchange=self._has_exchange_state(meta))
        ignored = () if self._has_exchange_state(meta) else (_exchange_prefix(meta),)
        self._check_arrays(checkpoint, expected, origin, ignored)
        if self.data is not None and meta.get("data", self.data) != self.data:
            raise CheckpointError(
                f"{origin} was trained on other images of {options.get('dataset')} than this run"
                f" has (fingerprint {meta['data']}, now {self.data})",
                hint="use the --data-dir that the run was started with",
            )

    def check_model(self, checkpoint: Checkpoint, origin: str) -> None:
        """On rank 0: raise unless this run can start from the parameters of this checkpoint."""
        expected = {
            **_prefixed("parameters", self._views(self.arena.parameters)),
            **_prefixed("statistics", RunningStatistics(self.model).arrays()),
        }
        unused = ("velocity/", "rank_statistics/", _exchange_prefix(checkpoint.meta))
        self._check_arrays(checkpoint, expected, origin, unused)

    def _check_arrays(
        self,
        checkpoint: Checkpoint,
        expected: Mapping[str, np.ndarray],
        origin: str,
        ignored: tuple[str, ...],
    ) -> None:
        # Only for Chainer; older checkpoints do not have them.
        for_chainer = _prefixed("parameters", persistent_numbers(self.model))
        found = {
            name: array
            for name, array in checkpoint.arrays.items()
            if name not in for_chainer and not name.startswith(ignored)
        }
        for name in sorted(expected.keys() | found.keys()):
            shapes = [
                arrays[name].shape if name in arrays else None for arrays in (found, expected)
            ]
            if shapes[0] != shapes[1]:
                there, here = (shape or "absent" for shape in shapes)
                raise CheckpointError(
                    f"{origin} does not fit this model: {name} has shape {there}, expected {here}",
                    hint=_written_with(checkpoint.meta),
                )
            if found[name].dtype != np.float32:
                raise CheckpointError(f"{origin}: {name} is not an array of float32")

    def initialise(self, checkpoint: Checkpoint | None) -> None:
        """Start from the parameters and statistics of rank 0's checkpoint, if it has one."""
        if not self.communicator.allgather(checkpoint is not None)[0]:
            return
        if checkpoint is not None:
            _fill(self._views(self.arena.parameters), checkpoint.arrays, "parameters")
        self.communicator.broadcast(self.arena.parameters)
        self._restore_statistics(checkpoint, None)

    def restore(self, checkpoint: Checkpoint | None) -> RunState | None:
        """Continue from rank 0's checkpoint on all ranks; None if it has none."""
        meta = self.communicator.allgather(checkpoint.meta if checkpoint else None)[0]
        if meta is None:
            return None
        if checkpoint is not None:
            _fill(self._views(self.arena.parameters), checkpoint.arrays, "parameters")
            _fill(self._views(self.optimizer.velocity), checkpoint.arrays, "velocity")
        self.communicator.broadcast(self.arena.parameters)
        self.communicator.broadcast(self.optimizer.velocity)
        self._restore_statistics(checkpoint, meta["ranks"])
        if self._has_exchange_state(meta):
            arrays = _unprefixed(self.config.compression, checkpoint.arrays) if checkpoint else None
            self.exchange.load_state(arrays, meta["ranks"])
        state = RunState.from_json(meta["state"], "the checkpoint")
        if meta["ranks"] != self.communicator.size:  # other links, and the bits differ anyway
            state.ring_from_bytes = None
        return state

    def _restore_statistics(self, checkpoint: Checkpoint | None, ranks: int | None) -> None:
        """Each rank's own if the number of ranks is the same, else the average over ranks."""
        statistics = RunningStatistics(self.model)
        same_ranks = ranks == self.communicator.size
        rows = np.zeros(
            (self.communicator.size if same_ranks else 1, statistics.flat().size), np.float32
        )
        if checkpoint is not None:
            prefix = "rank_statistics" if same_ranks else "statistics"
            _fill(statistics.split(rows), checkpoint.arrays, prefix)
        self.communicator.broadcast(rows)
        statistics.set_flat(rows[self.communicator.rank if same_ranks else 0])

    def _has_exchange_state(self, meta: Mapping[str, Any]) -> bool:
        """Whether a checkpoint holds a state that fits this run's exchange."""
        config, before = self.config.to_json(), meta["options"]
        return all(before.get(name) == config[name] for name in EXCHANGE_OPTIONS)

    def _expected_arrays(self, ranks: int, *, with_exchange: bool) -> dict[str, np.ndarray]:
        state = self.exchange.expected_state(ranks) if with_exchange else {}
        statistics = RunningStatistics(self.model)
        by_rank = statistics.split(np.zeros((ranks, statistics.flat().size), np.float32))
        return {
            **_prefixed("parameters", self._views(self.arena.parameters)),
            **_prefixed("velocity", self._views(self.optimizer.velocity)),
            **_prefixed("statistics", statistics.arrays()),
            **_prefixed("rank_statistics", by_rank),
            **_prefixed(self.config.compression, state),
        }

    def _views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        return {name: self.arena.view(flat, name) for name in self.arena.names}


def _written_with(meta: Mapping[str, Any]) -> str | None:
    options = meta.get("options")
    if not isinstance(options, dict):
        return None
    return "it was written with " + " ".join(f"--{n} {options.get(n)}" for n in MODEL_OPTIONS)


def _exchange_prefix(meta: Mapping[str, Any]) -> str:
    options = meta.get("options")
    return f"{options.get('compression') if isinstance(options, dict) else None}/"


def _prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def _unprefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    start = f"{prefix}/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}


def _fill(targets: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray], prefix: str) -> None:
    for name, target in targets.items():
        target[...] = arrays[f"{prefix}/{name}"]
