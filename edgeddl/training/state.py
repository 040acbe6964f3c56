"""The position and record of a run."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, field
from typing import Any

from edgeddl.errors import CheckpointError


@dataclass
class RunState:
    """Together with the arrays of a checkpoint, everything that a resumed run needs.

    The order of images and their augmentation follow from seed, epoch and position.
    """

    step: int = 0
    epoch: int = 0
    first_image: int = 0  # images of this epoch used so far
    images: int = 0  # images of all epochs used so far
    best_step: int | None = None  # the step after which accuracy was highest, of all epochs
    best_accuracy: float | None = None
    shares: list[int] = field(default_factory=list)  # images of a whole step by rank
    ring_from_bytes: int | None = None  # the ring sums buckets from this size on; None: undecided
    history: list[dict[str, Any]] = field(default_factory=list)  # one entry per epoch
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
        """Completed epochs plus the fraction of the current one."""
        return self.epoch + self.first_image / epoch_images

    @property
    def epoch_to_record(self) -> bool:
        """Whether an epoch has ended that is not in the history yet."""
        return self.at_epoch_end and self._recorded_step < self.step

    def record_epoch(self, test_loss: float | None, accuracy: float | None) -> None:
        """Add the epoch that has just ended to the history, with the results of its evaluation."""
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
        """Record the evaluation of a run that ends at a step without one.

        It is discarded when the run continues, so that the run equals one that never ended here.
        """
        self.end_evaluation = {"step": self.step, "test_loss": test_loss, "accuracy": accuracy}

    @property
    def best(self) -> tuple[int | None, float | None]:
        """Step and accuracy of the best evaluation, including that of an early end."""
        end = self.end_evaluation
        if end and (self.best_accuracy is None or end["accuracy"] > self.best_accuracy):
            return end["step"], end["accuracy"]
        return self.best_step, self.best_accuracy

    @property
    def accuracy(self) -> float | None:
        """The accuracy after the current step; None if it was not evaluated."""
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
        """Parse a state; a CheckpointError names its origin if it is invalid."""
        kinds: dict[str, Any] = {name: type(default) for name, default in asdict(cls()).items()}
        kinds |= {"best_step": int | None, "best_accuracy": float | None}
        kinds |= {"ring_from_bytes": int | None, "end_evaluation": dict | None}
        if isinstance(value, dict):  # absent in older checkpoints
            value = {"shares": [], "ring_from_bytes": None, "end_evaluation": None} | value
        fits = isinstance(value, dict) and value.keys() == kinds.keys()
        if not fits or not all(isinstance(value[name], kind) for name, kind in kinds.items()):
            raise CheckpointError(f"{origin} does not describe the state of a run")
        state = cls(**copy.deepcopy(value))
        steps = [e.get("step") if isinstance(e, dict) else None for e in state.history]
        if len(state.step_losses) != state.step or not all(type(step) is int for step in steps):
            raise CheckpointError(f"{origin} is inconsistent: its history does not fit its step")
        if state.end_evaluation and state.end_evaluation.keys() != {
            "step",
            "test_loss",
            "accuracy",
        }:
            raise CheckpointError(f"{origin} has an invalid evaluation")
        if not all(type(share) is int and share > 0 for share in state.shares):
            raise CheckpointError(f"{origin} has shares that are not numbers of images")
        return state
