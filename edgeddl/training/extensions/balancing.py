"""Changes the ranks' shares of a step as their speeds are found out."""

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
    return [Balancing(Balancer(run.state.shares), loader, speaks=run.communicator.rank == 0)]


class Balancing:
    """On every rank: all hear the same of each other, and so decide the same."""

    def __init__(self, balancer: Balancer, loader: TrainLoader, *, speaks: bool) -> None:
        self._balancer = balancer
        self._loader = loader
        self._speaks = speaks
        self._images_before = 0  # of all ranks in the step before

    def on_step(self, report: StepReport) -> None:
        """Times told now are of the step before; the last one of an epoch is no measure."""
        was_whole = self._images_before == sum(self._balancer.shares)
        self._images_before = report.global_images
        if was_whole and self._balancer.observe(report.busy_seconds):
            self._share_anew(report.state)

    def on_epoch(self, state: RunState) -> None:
        """Nothing: epochs are nothing to balance by."""

    def on_pause(self, state: RunState, *, final: bool) -> None:
        """Nothing: the shares are in the state."""

    def _share_anew(self, state: RunState) -> None:
        state.shares = self._balancer.shares
        self._loader.set_shares(state.shares)
        if self._speaks:
            logger.info("balance: %s images a step", " ".join(map(str, state.shares)))
