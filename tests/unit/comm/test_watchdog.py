"""Waiting ranks name those that have not arrived."""

from __future__ import annotations

import contextlib
import logging
import threading

import numpy as np
import pytest

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.comm.watchdog import watching
from edgeddl.errors import CollectiveTimeout, CommunicationError


def watched(
    communicator: Communicator, warning: float, timeout: float
) -> contextlib.AbstractContextManager[Communicator]:
    return watching(communicator, warning_seconds=warning, timeout_seconds=timeout)


def test_a_late_rank_is_named_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    warned = threading.Event()
    caplog.handler.addFilter(lambda record: warned.set() or True)

    def work(inner: Communicator) -> float:
        with watched(inner, warning=0.1, timeout=60) as communicator:
            communicator.barrier()
            if communicator.rank == 2:
                assert warned.wait(timeout=20)
            total = np.ones(1)
            communicator.allreduce(total)
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
        with watched(inner, warning=0.1, timeout=0.5) as communicator:
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


def test_a_rank_that_arrived_and_fell_silent_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Though it has the lowest number, another speaks."""
    ended = threading.Event()

    def work(inner: Communicator) -> None:
        if inner.rank == 0:  # without a watchdog: arrives, and is not heard of again
            inner.post_progress(1)
            inner.barrier()
        elif inner.rank == 1:
            with watched(inner, warning=0.1, timeout=0.5) as communicator:
                try:
                    communicator.barrier()
                finally:
                    ended.set()
        else:
            assert ended.wait(timeout=20)

    with pytest.raises(CollectiveTimeout) as caught:
        run_ranks(3, work)
    assert caught.value.ranks == (0, 2)
    assert "rank 0 on thread-0 (no sign of life)" in caplog.text


def test_nothing_is_said_when_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    def work(inner: Communicator) -> None:
        with watched(inner, warning=5, timeout=10) as communicator:
            for _ in range(20):
                communicator.barrier()
            communicator.close()

    run_ranks(3, work)
    assert not caplog.records


def test_a_rank_behind_on_one_lane_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Rank 1 has done both of the first lane's; rank 0 waits in what it numbered in between."""
    ended = threading.Event()

    def work(inner: Communicator) -> None:
        with watched(inner, warning=0.1, timeout=1.0) as communicator:
            first, second = communicator.lanes(2)
            threads = [
                threading.Thread(target=wait_in, args=(lane,))
                for lane in ([second] if communicator.rank == 0 else [])
            ]
            for thread in threads:
                thread.start()
            first.barrier()
            first.barrier()
            if communicator.rank == 1:
                assert ended.wait(timeout=20)
            for thread in threads:
                thread.join()

    def wait_in(lane: Communicator) -> None:
        with contextlib.suppress(CommunicationError):
            lane.barrier()
        ended.set()

    with caplog.at_level(logging.WARNING, "edgeddl"), contextlib.suppress(CommunicationError):
        run_ranks(2, work)
    assert "not arrived: rank 1 on thread-1" in caplog.text
