"""A run that is ready for its first step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgeddl import machine
from edgeddl.chainer_compat import chainer
from edgeddl.comm.arena import Arena
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import GradientExchange
from edgeddl.comm.local_steps import steps_to_round_end
from edgeddl.config import TrainConfig
from edgeddl.data import NO_AUGMENTATION, Dataset, TrainLoader, usual_augmentation
from edgeddl.optimizers import MomentumSGD
from edgeddl.training.memory import MemoryPrediction
from edgeddl.training.run_folder import RunFolder
from edgeddl.training.schedule import Schedule
from edgeddl.training.snapshot import Snapshots
from edgeddl.training.state import RunState


@dataclass(frozen=True)
class PreparedRun:
    """Everything a run consists of before its first step. Only rank 0 has a folder."""

    config: TrainConfig
    communicator: Communicator
    dataset: Dataset
    model: chainer.Chain
    arena: Arena
    exchange: GradientExchange
    optimizer: MomentumSGD
    schedule: Schedule
    peak_learning_rate: float
    snapshots: Snapshots
    folder: RunFolder | None
    state: RunState
    memory: list[MemoryPrediction]  # by rank; empty if ranks are threads

    @property
    def epoch_images(self) -> int:
        return len(self.dataset.train)

    @property
    def global_batch(self) -> int:
        return sum(self.state.shares)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.epoch_images // self.global_batch)

    @property
    def total_steps(self) -> int:
        """The number of the run's last step."""
        this_epoch = -(-(self.epoch_images - self.state.first_image) // self.global_batch)
        later = max(self.config.epochs - self.state.epoch - 1, 0) * self.steps_per_epoch
        left = this_epoch + later if self.state.epoch < self.config.epochs else 0
        if self.config.max_steps is not None:
            wanted = steps_to_round_end(
                max(self.config.max_steps - self.state.step, 0),
                this_epoch=this_epoch,
                steps_per_epoch=self.steps_per_epoch,
                round_steps=self.exchange.round_steps,
            )
            left = min(left, wanted)
        return self.state.step + left

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing left to train or to evaluate."""
        state = self.state
        evaluated = state.accuracy is not None and not state.epoch_to_record
        return evaluated and self.total_steps == state.step

    def make_loader(self) -> TrainLoader:
        """This rank's training images, in the order that follows from the seed."""
        config = self.config
        usual = usual_augmentation(self.dataset.image_shape)
        augmentation = usual if config.augment else NO_AUGMENTATION
        return TrainLoader(
            self.dataset.train,
            self.dataset.mean,
            self.dataset.std,
            rank=self.communicator.rank,
            shares=self.state.shares,
            batch_size=config.batch_size,
            accumulation=config.accumulation,
            seed=config.seed,
            augmentation=replace(augmentation, cutout=config.cutout),
            threads=config.threads or machine.default_threads(),
        )
