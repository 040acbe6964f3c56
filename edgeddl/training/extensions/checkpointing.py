"""Writes checkpoints as a run goes on."""

from __future__ import annotations

from edgeddl.errors import CheckpointError
from edgeddl.log import logger
from edgeddl.training.checkpoint import Checkpoint, CheckpointStore
from edgeddl.training.divergence import check_finite
from edgeddl.training.late_update import LateUpdate
from edgeddl.training.loop import StepReport
from edgeddl.training.snapshot import Snapshots
from edgeddl.training.state import RunState


class Checkpointing:
    """Captures the run on all ranks and writes it on rank 0: at intervals, at its best, at its end.

    A checkpoint that cannot be written is a warning: hours of training are worth more than it.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        store: CheckpointStore | None,
        every_steps: int | None,
        late_update: LateUpdate,
        *,
        first_step: int,
    ) -> None:
        self._snapshots = snapshots
        self._late_update = late_update
        self._store = store  # on rank 0 only
        self._every_steps = every_steps
        self._paused_step = first_step  # the last one after which there was a pause
        self.saved_step: int | None = None  # of the last checkpoint that is on the disk

    def on_step(self, report: StepReport) -> None:
        """Nothing: evaluation comes first."""

    def on_epoch(self, state: RunState) -> None:
        """Nothing: `on_pause` follows."""

    def on_pause(self, state: RunState, *, final: bool) -> None:
        best = state.best[0] == state.step
        due = self._is_due(state)
        self._paused_step = state.step
        if not (final or best or due):
            return
        self._late_update.settle()
        check_finite("norm of the parameters", self._snapshots.parameter_norm(), state.step)
        checkpoint = self._snapshots.capture(state)
        if self._store is not None:
            self._save(self._store, checkpoint, state, best)
        # Else the others would wait for rank 0 in the next step, and count it as communication.
        self._snapshots.communicator.barrier()

    def _save(
        self, store: CheckpointStore, checkpoint: Checkpoint, state: RunState, best: bool
    ) -> None:
        try:
            store.save(state.step, checkpoint, best=best, at_end=state.end_evaluation is not None)
            self.saved_step = state.step
        except CheckpointError as error:
            logger.warning("the run goes on, but %s", error)

    def _is_due(self, state: RunState) -> bool:
        if self._every_steps is None:
            return state.at_epoch_end
        # With local steps there is not a pause after each step: then at the first one after.
        return state.step // self._every_steps > self._paused_step // self._every_steps
