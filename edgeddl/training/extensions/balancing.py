"""Adjusts the ranks' shares of a step to their measured speeds."""

from __future__ import annotations

from edgeddl.data import TrainLoader
from edgeddl.log import logger
from edgeddl.training.balance import Balancer
from edgeddl.training.loop import Extension, StepReport
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.state import RunState


def make_balancing(run: PreparedRun, loader: TrainLoader) -> list[Extension]:
    """For --balance auto on several ranks."""
    if run.config.balance != "auto" or run.communicator.size == 1:
        return []
    return [Balancing(Balancer(run.state.shares), loader, logs=run.communicator.rank == 0)]


class Balancing:
    """Runs on every rank; all ranks see the same reports, so they make the same decisions."""

    def __init__(self, balancer: Balancer, loader: TrainLoader, *, logs: bool) -> None:
        self._balancer = balancer
        self._loader = loader
        self._logs = logs
        self._images_before = 0  # of all ranks in the previous step

    def on_step(self, report: StepReport) -> None:
        """Observe the previous step, unless it had fewer images as the last of its epoch."""
        was_whole = self._images_before == sum(self._balancer.shares)
        self._images_before = report.global_images
        if was_whole and self._balancer.observe(report.busy_seconds):
            self._apply_shares(report.state)

    def on_epoch(self, state: RunState) -> None:
        """Nothing to do."""

    def on_pause(self, state: RunState, *, final: bool) -> None:
        """Nothing to do: the shares are in the state."""

    def _apply_shares(self, state: RunState) -> None:
        state.shares = self._balancer.shares
        self._loader.set_shares(state.shares)
        if self._logs:
            logger.info("balance: %s images per step", " ".join(map(str, state.shares)))
