"""Waiting ranks name those that have not joined."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.comm.watchdog import Watchdog, _Wait, watching
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
    assert (
        "all-reduce; not joined: rank 2 on thread-2 (responding, but not making progress)"
        in caplog.text
    )
    assert caplog.text.count("not joined") == 1  # one rank speaks for all


def test_a_rank_that_never_comes_ends_the_job(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    def work(inner: Communicator) -> None:
        if inner.rank == 1:  # without a watchdog: it sends no heartbeat
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
    assert "no heartbeat" in caplog.text


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
    assert "rank 0 on thread-0 (no heartbeat)" in caplog.text


def test_nothing_is_said_when_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    def work(inner: Communicator) -> None:
        with watched(inner, warning=5, timeout=10) as communicator:
            for _ in range(20):
                communicator.barrier()
            communicator.close()

    run_ranks(3, work)
    assert not caplog.records


def test_a_rank_behind_on_one_channel_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Rank 1 has done both of the first channel's; rank 0 waits in what it numbered in between."""
    ended = threading.Event()

    def work(inner: Communicator) -> None:
        with watched(inner, warning=0.1, timeout=1.0) as communicator:
            first, second = communicator.channels(2)
            threads = [
                threading.Thread(target=wait_in, args=(channel,))
                for channel in ([second] if communicator.rank == 0 else [])
            ]
            for thread in threads:
                thread.start()
            first.barrier()
            first.barrier()
            if communicator.rank == 1:
                assert ended.wait(timeout=20)
            for thread in threads:
                thread.join()

    def wait_in(channel: Communicator) -> None:
        with contextlib.suppress(CommunicationError):
            channel.barrier()
        ended.set()

    with caplog.at_level(logging.WARNING, "edgeddl"), contextlib.suppress(CommunicationError):
        run_ranks(2, work)
    assert "not joined: rank 1 on thread-1" in caplog.text


class OneOfThree(SingleCommunicator):
    """A rank that hears from nobody by itself: each test says what it has heard."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.size, self.hosts = rank, 3, ["pi-01", "pi-02", "pi-03"]
        self.exit_codes: list[int] = []

    def abort(self, exit_code: int) -> None:  # type: ignore[override]
        self.exit_codes.append(exit_code)


# Signs of life are due every two seconds, and silence is more than three of them.
WARNING, TIMEOUT, SILENCE = 8.0, 20.0, 6.0
ALIVE, SILENT = SILENCE - 0.5, SILENCE + 0.5


@contextlib.contextmanager
def watchdog_of(rank: int) -> Iterator[tuple[OneOfThree, Watchdog]]:
    communicator = OneOfThree(rank)
    watchdog = Watchdog(communicator, warning_seconds=WARNING, timeout_seconds=TIMEOUT)
    try:
        yield communicator, watchdog
    finally:
        watchdog.close()


def judge(rank: int, waited: float, *heard: tuple[int, float]) -> tuple[list[int], bool]:
    """By one rank that has begun 5 collectives: exit codes, and whether it has warned."""
    with watchdog_of(rank) as (communicator, watchdog):
        watchdog._judge(_Wait("barrier", time.monotonic() - waited), 5, list(heard))
        return communicator.exit_codes, watchdog._warned


ONE_LATE = [(5, ALIVE), (5, ALIVE), (4, ALIVE)]


def test_the_first_rank_that_waits_warns_and_the_others_do_not() -> None:
    assert [judge(rank, WARNING + 0.5, *ONE_LATE)[1] for rank in range(3)] == [True, False, False]
    first_silent = [(5, SILENT), (5, ALIVE), (5, ALIVE)]
    assert [judge(rank, WARNING + 0.5, *first_silent)[1] for rank in (1, 2)] == [True, False]


def test_nobody_warns_before_the_time() -> None:
    assert not any(judge(rank, WARNING - 0.5, *ONE_LATE)[1] for rank in range(3))


def test_rank_0_speaks_when_all_are_late() -> None:
    all_late = [(4, ALIVE)] * 3
    assert [judge(rank, WARNING + 0.5, *all_late)[1] for rank in range(3)] == [True, False, False]


def test_the_rank_that_speaks_ends_the_job_first() -> None:
    """Others follow two signs of life later, should it be unable to."""
    assert judge(0, TIMEOUT - 0.5, *ONE_LATE) == ([], True)
    assert judge(0, TIMEOUT + 0.5, *ONE_LATE) == ([3], False)
    assert judge(1, TIMEOUT + 3.5, *ONE_LATE) == ([], False)
    assert judge(1, TIMEOUT + 4.5, *ONE_LATE) == ([3], False)


@pytest.mark.parametrize(
    ("heard", "late"),
    [
        (
            [(5, ALIVE), (5, ALIVE), (4, ALIVE)],
            "rank 2 on pi-03 (responding, but not making progress)",
        ),
        ([(5, ALIVE), (6, SILENT), (5, ALIVE)], "rank 1 on pi-02 (no heartbeat)"),
        ([(5, ALIVE), (6, ALIVE), (5, ALIVE)], "all ranks have joined"),
    ],
)
def test_who_is_late(
    heard: list[tuple[int, float]], late: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "edgeddl"):
        judge(0, WARNING + 0.5, *heard)
    assert caplog.text.count(late) == 1
    assert caplog.text.count("rank ") == (0 if late.startswith("all") else 1)


def test_a_warning_comes_once_for_each_collective(caplog: pytest.LogCaptureFixture) -> None:
    with watchdog_of(0) as (_, watchdog), caplog.at_level(logging.WARNING, "edgeddl"):
        for _ in range(2):
            with watchdog.collective("barrier"):
                for _ in range(2):
                    wait = _Wait("barrier", time.monotonic() - WARNING - 0.5)
                    watchdog._judge(wait, 5, ONE_LATE)
    assert caplog.text.count("s in barrier; not joined: rank 2") == 2


@pytest.mark.parametrize(("warning", "interval"), [(8.0, 2.0), (60.0, 2.5)])
def test_four_signs_of_life_within_the_warning_time(warning: float, interval: float) -> None:
    watchdog = Watchdog(OneOfThree(0), warning_seconds=warning, timeout_seconds=TIMEOUT)
    assert watchdog._interval == interval
    watchdog._closed.set()


def test_one_rank_needs_no_watchdog() -> None:
    alone = SingleCommunicator()
    with watched(alone, warning=1, timeout=2) as communicator:
        assert communicator is alone


def test_warnings_come_earlier_during_start_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeddl.comm.watchdog.STARTUP_WARNING_SECONDS", 0.1)
    warned = threading.Event()
    caplog.handler.addFilter(lambda record: warned.set() or True)

    def work(inner: Communicator) -> None:
        with watched(inner, warning=50, timeout=60) as communicator:
            if communicator.rank == 1:
                assert warned.wait(timeout=20)
            communicator.barrier()
            communicator.channels(1)  # ends start-up
            caplog.clear()
            if communicator.rank == 1:
                time.sleep(0.5)
            communicator.barrier()

    with caplog.at_level(logging.WARNING, "edgeddl"):
        run_ranks(2, work)
    assert warned.is_set() and not caplog.messages
