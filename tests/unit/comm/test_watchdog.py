"""Waiting ranks name those that have not arrived."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.comm.watchdog import Watchdog, WatchedCommunicator
from edgeddl.errors import CollectiveTimeout


def watched(communicator: Communicator, warning: float, timeout: float) -> WatchedCommunicator:
    watchdog = Watchdog(communicator, warning_seconds=warning, timeout_seconds=timeout)
    return WatchedCommunicator(communicator, watchdog)


def test_a_late_rank_is_named_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    warned = threading.Event()
    caplog.handler.addFilter(lambda record: warned.set() or True)

    def work(inner: Communicator) -> float:
        communicator = watched(inner, warning=0.1, timeout=60)
        communicator.barrier()
        if communicator.rank == 2:
            assert warned.wait(timeout=20)
        total = np.ones(1)
        communicator.allreduce(total)
        communicator.close()
        return float(total[0])

    with caplog.at_level(logging.WARNING, "edgeddl"):
        assert run_ranks(3, work) == [3, 3, 3]
    assert "all-reduce; not arrived: rank 2 on thread-2 (alive, but busy or hanging)" in caplog.text
    assert caplog.text.count("not arrived") == 1  # one rank speaks for all


def test_a_rank_that_never_comes_ends_the_job(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    def work(inner: Communicator) -> None:
        if inner.rank == 1:  # without a watchdog: it gives no sign of life
            assert ended.wait(timeout=20)
            return
        communicator = watched(inner, warning=0.1, timeout=0.5)
        try:
            communicator.barrier()
        finally:
            ended.set()

    with pytest.raises(CollectiveTimeout, match="rank 1 on thread-1") as caught:
        run_ranks(3, work)
    assert caught.value.ranks == (1,)
    assert caught.value.exit_code == 3
    assert "--resume auto" in str(caught.value)
    assert "no sign of life" in caplog.text


def test_nothing_is_said_when_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    def work(inner: Communicator) -> None:
        communicator = watched(inner, warning=5, timeout=10)
        for _ in range(20):
            communicator.barrier()
        communicator.close()

    run_ranks(3, work)
    assert not caplog.records
