"""What PowerSGD carries from step to step, in a checkpoint and back.

    powersgd/factor/NAME        Q of the last step, transposed
    powersgd/rank_error/NAME    what every rank has not sent yet: [rank][row][column]

With another number of ranks, their sum is dealt out evenly: nothing is lost. With another kind of
compression, or another rank of it, this state begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.powersgd import PowerSGD

PREFIX = "powersgd"


@dataclass(frozen=True)
class CompressionState:
    """Captures and restores the state of one rank's PowerSGD; both are collective."""

    communicator: Communicator
    powersgd: PowerSGD

    def capture(self) -> dict[str, np.ndarray]:
        """On rank 0, which writes checkpoints; nothing on the others."""
        errors, ranks = self.powersgd.errors, self.communicator.size
        # Not gathered by all: N ranks would need room for N times the errors of N ranks.
        by_rank = np.zeros((ranks, errors.size), np.float32) if self._is_root else None
        self.communicator.gather_array(errors, by_rank)
        return {} if by_rank is None else self._named(by_rank)

    def expected_arrays(self, ranks: int) -> dict[str, np.ndarray]:
        """Arrays of the shapes that a checkpoint of so many ranks has."""
        errors = self.powersgd.errors
        return self._named(np.broadcast_to(errors, (ranks, errors.size)))

    def restore(self, arrays: Mapping[str, np.ndarray] | None, ranks: int) -> None:
        """From rank 0's arrays, written by so many ranks; the others have none."""
        same_ranks = ranks == self.communicator.size
        row = np.zeros_like(self.powersgd.errors)
        for rank in range(ranks if same_ranks else 1):
            if arrays is not None:
                self._fill_row(row, arrays, rank if same_ranks else None)
            self.communicator.broadcast(row)
            if not same_ranks or rank == self.communicator.rank:
                self.powersgd.errors[...] = row
        if arrays is not None:
            for name, factor in self.powersgd.split_factors(self.powersgd.factors).items():
                factor[...] = arrays[f"{PREFIX}/factor/{name}"]
        self.communicator.broadcast(self.powersgd.factors)

    def _fill_row(self, row: np.ndarray, arrays: Mapping[str, Any], rank: int | None) -> None:
        """One rank's errors, or for None an equal part in those of all."""
        for name, error in self.powersgd.split_errors(row).items():
            by_rank = arrays[f"{PREFIX}/rank_error/{name}"]
            error[...] = (
                by_rank.sum(axis=0) / self.communicator.size if rank is None else by_rank[rank]
            )

    def _named(self, by_rank: np.ndarray) -> dict[str, np.ndarray]:
        errors = self.powersgd.split_errors(by_rank)
        factors = self.powersgd.split_factors(self.powersgd.factors)
        return {f"{PREFIX}/rank_error/{name}": error for name, error in errors.items()} | {
            f"{PREFIX}/factor/{name}": factor for name, factor in factors.items()
        }

    @property
    def _is_root(self) -> bool:
        return self.communicator.rank == 0
