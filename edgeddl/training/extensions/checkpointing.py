"""Writes checkpoints during a run."""

from __future__ import annotations

from collections.abc import Callable

from edgeddl.errors import CheckpointError
from edgeddl.log import logger
from edgeddl.training.checkpoint import Checkpoint, CheckpointStore
from edgeddl.training.divergence import check_finite
from edgeddl.training.loop import StepReport
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.snapshot import Snapshots
from edgeddl.training.state import RunState


def make_checkpointing(
    run: PreparedRun, finish_pending_update: Callable[[], None]
) -> Checkpointing:
    """Captures on all ranks, writes on rank 0, as --checkpoint-every and --keep-checkpoints say."""
    config = run.config
    store = CheckpointStore(run.folder.checkpoints, config.keep_checkpoints) if run.folder else None
    return Checkpointing(
        run.snapshots,
        store,
        config.checkpoint_every,
        finish_pending_update,
        first_step=run.state.step,
    )


class Checkpointing:
    """Captures the run on all ranks and writes it on rank 0: at intervals, at its best, at its end.

    If a checkpoint cannot be written, a warning is logged and training continues.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        store: CheckpointStore | None,
        every_steps: int | None,
        finish_pending_update: Callable[[], None],
        *,
        first_step: int,
    ) -> None:
        self._snapshots = snapshots
        self._finish_pending_update = finish_pending_update
        self._store = store  # on rank 0 only
        self._every_steps = every_steps
        self._paused_step = first_step  # the step of the last pause
        self.saved_step: int | None = None  # of the last checkpoint on the disk

    def on_step(self, report: StepReport) -> None:
        """Nothing to do: evaluation comes first."""

    def on_epoch(self, state: RunState) -> None:
        """Nothing to do: `on_pause` follows."""

    def on_pause(self, state: RunState, *, final: bool) -> None:
        best = state.best[0] == state.step
        due = self._is_due(state)
        self._paused_step = state.step
        if not (final or best or due):
            return
        self._finish_pending_update()
        check_finite("norm of the parameters", self._snapshots.parameter_norm(), state.step)
        checkpoint = self._snapshots.capture(state)
        if self._store is not None:
            self._save(self._store, checkpoint, state, best)
        # Without this, ranks would wait for rank 0 in the next step and count it as communication.
        self._snapshots.communicator.barrier()

    def exit_code_if_unsaved(self, step: int) -> int:
        """0 if the model of this step is on the disk; else report an error on rank 0.

        The trained model would be lost, so this is more than a warning.
        """
        if self.saved_step == step:
            return 0
        saved = self.saved_step
        where = "there is no checkpoint" if saved is None else f"the last is of step {saved}"
        error = CheckpointError(
            f"the model as trained up to step {step} is NOT saved: {where}",
            hint="make room, then continue with --resume auto",
        )
        logger.error("%s", error)
        return error.exit_code

    def _save(
        self, store: CheckpointStore, checkpoint: Checkpoint, state: RunState, best: bool
    ) -> None:
        try:
            store.save(state.step, checkpoint, best=best, at_end=state.end_evaluation is not None)
            self.saved_step = state.step
        except CheckpointError as error:
            logger.warning("training continues, but %s", error)

    def _is_due(self, state: RunState) -> bool:
        if self._every_steps is None:
            return state.at_epoch_end
        # With local steps not every step has a pause; then the next pause counts.
        return state.step // self._every_steps > self._paused_step // self._every_steps
