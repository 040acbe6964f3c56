"""How far a run has come."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, field
from typing import Any

from edgeddl.errors import CheckpointError


@dataclass
class RunState:
    """Position and record of a run: with the arrays of a checkpoint, all that resuming needs.

    The order of images and their augmentation follow from seed, epoch and position alone.
    """

    step: int = 0
    epoch: int = 0
    first_image: int = 0  # images of this epoch that are behind us
    images: int = 0  # images of all epochs that are behind us
    best_step: int | None = None  # the step after which accuracy was highest, of all epochs
    best_accuracy: float | None = None
    shares: list[int] = field(default_factory=list)  # images of a whole step by rank
    ring_from_bytes: int | None = None  # the ring sums buckets from this size on; None: undecided
    history: list[dict[str, Any]] = field(default_factory=list)  # one entry an epoch
    step_losses: list[float] = field(default_factory=list)
    end_evaluation: dict[str, Any] | None = None  # of a run that --max-steps has ended here

    def advance(self, loss: float, images: int, epoch_images: int) -> None:
        """Record a step over this many images."""
        self.step += 1
        self.images += images
        self.first_image += images
        self.step_losses.append(loss)
        self.end_evaluation = None
        if self.first_image >= epoch_images:
            self.epoch, self.first_image = self.epoch + 1, 0

    @property
    def at_epoch_end(self) -> bool:
        return self.step > 0 and self.first_image == 0

    def progress(self, epoch_images: int) -> float:
        """Epochs behind us, with the fraction of the present one."""
        return self.epoch + self.first_image / epoch_images

    @property
    def epoch_to_record(self) -> bool:
        """Whether an epoch has ended that is not in the history yet."""
        return self.at_epoch_end and self._recorded_step < self.step

    def record_epoch(self, test_loss: float | None, accuracy: float | None) -> None:
        """Enter the epoch that has just ended into the history, with what an evaluation gave."""
        losses = self.step_losses[self._recorded_step :]
        entry: dict[str, Any] = {
            "epoch": self.epoch,
            "step": self.step,
            "loss": sum(losses) / len(losses),
        }
        if accuracy is not None:
            entry |= {"test_loss": test_loss, "accuracy": accuracy}
            if self.best_accuracy is None or accuracy > self.best_accuracy:
                self.best_step, self.best_accuracy = self.step, accuracy
        self.history.append(entry)

    def record_end(self, test_loss: float, accuracy: float) -> None:
        """Enter the evaluation of a run that ends where its history has none.

        It counts as long as the run stays there: one that continues is the same as one that never
        ended, which would not have been evaluated here.
        """
        self.end_evaluation = {"step": self.step, "test_loss": test_loss, "accuracy": accuracy}

    @property
    def best(self) -> tuple[int | None, float | None]:
        """Step and accuracy of the best evaluation, that of an early end included."""
        end = self.end_evaluation
        if end and (self.best_accuracy is None or end["accuracy"] > self.best_accuracy):
            return end["step"], end["accuracy"]
        return self.best_step, self.best_accuracy

    @property
    def accuracy(self) -> float | None:
        """As evaluated after this very step; None if it was not."""
        for entry in (self.end_evaluation, *self.history[-1:]):
            if entry and entry["step"] == self.step and "accuracy" in entry:
                accuracy: float = entry["accuracy"]
                return accuracy
        return None

    @property
    def _recorded_step(self) -> int:
        return self.history[-1]["step"] if self.history else 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any, origin: str) -> RunState:
        """A new state; what does not describe one is a CheckpointError that names its origin."""
        kinds: dict[str, Any] = {name: type(default) for name, default in asdict(cls()).items()}
        kinds |= {"best_step": int | None, "best_accuracy": float | None}
        kinds |= {"ring_from_bytes": int | None, "end_evaluation": dict | None}
        if isinstance(value, dict):  # older checkpoints know nothing of these
            value = {"shares": [], "ring_from_bytes": None, "end_evaluation": None} | value
        fits = isinstance(value, dict) and value.keys() == kinds.keys()
        if not fits or not all(isinstance(value[name], kind) for name, kind in kinds.items()):
            raise CheckpointError(f"{origin} does not describe the state of a run")
        state = cls(**copy.deepcopy(value))
        steps = [e.get("step") if isinstance(e, dict) else None for e in state.history]
        if len(state.step_losses) != state.step or not all(type(step) is int for step in steps):
            raise CheckpointError(f"{origin} contradicts itself: its history does not fit its step")
        if state.end_evaluation and state.end_evaluation.keys() != {
            "step",
            "test_loss",
            "accuracy",
        }:
            raise CheckpointError(f"{origin} has an evaluation that is none")
        if not all(type(share) is int and share > 0 for share in state.shares):
            raise CheckpointError(f"{origin} has shares of a step that are no numbers of images")
        return state
