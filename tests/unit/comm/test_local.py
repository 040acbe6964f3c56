"""Ranks as threads: one that fails ends the others."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.errors import CommunicationError


def test_results_come_by_rank() -> None:
    assert run_ranks(4, lambda communicator: communicator.rank * 10) == [0, 10, 20, 30]


def test_the_first_failure_is_the_one_raised() -> None:
    def work(communicator: Communicator) -> None:
        if communicator.rank == 1:
            raise ZeroDivisionError("rank 1")
        communicator.barrier()  # the others wait here and must not hang

    with pytest.raises(ZeroDivisionError, match="rank 1"):
        run_ranks(3, work)


def test_abort_ends_the_others() -> None:
    def work(communicator: Communicator) -> None:
        if communicator.rank == 0:
            communicator.abort(7)
        communicator.allreduce(np.zeros(1))

    with pytest.raises(CommunicationError, match="rank 0 ended the job"):
        run_ranks(3, work)
