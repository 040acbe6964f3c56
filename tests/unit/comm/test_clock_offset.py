"""Clocks of ranks, compared."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from edgeddl.comm import clock_offset
from edgeddl.comm.clock_offset import ClockFix, measure_offsets
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.errors import CommunicationError

AHEAD = {"rank-0": 0.0, "rank-1": 5.0, "rank-2": -3.0}


def test_clocks_that_are_apart_are_found_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted() -> float:
        return time.perf_counter() + AHEAD[threading.current_thread().name]

    monkeypatch.setattr(
        clock_offset,
        "time",
        SimpleNamespace(perf_counter=shifted, monotonic=time.monotonic, sleep=time.sleep),
    )
    fixes, *nothing = run_ranks(3, measure_offsets)
    assert nothing == [[], []]
    for fix, ahead in zip(fixes, AHEAD.values(), strict=True):
        assert fix.offset == pytest.approx(-ahead, abs=fix.uncertainty + 1e-9)
        assert 0 <= fix.uncertainty < 1


def test_a_rank_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not rank 0, which the third rank waits for."""
    monkeypatch.setattr(clock_offset, "TIMEOUT_SECONDS", 0.2)

    def work(communicator: Communicator) -> None:
        if communicator.rank == 1:
            communicator.barrier()  # it stops here
        else:
            measure_offsets(communicator)

    with pytest.raises(CommunicationError, match=r"rank 1 on .* did not answer"):
        run_ranks(3, work)


def test_one_rank_has_its_own_clock() -> None:
    (fix,) = measure_offsets(SingleCommunicator())
    assert fix == ClockFix(fix.at, 0.0, 0.0)
