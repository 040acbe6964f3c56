"""Which algorithm is chosen, given what was measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgeddl.comm import tuning
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import ThreadCommunicator, run_ranks
from edgeddl.comm.tuning import (
    LARGE_BYTES,
    NEVER,
    RING_FROM_BYTES,
    Always,
    RingFrom,
    choose_ring_from,
    measure_link,
    time_allreduce,
)
from edgeddl.errors import CommunicationError


def chosen_with(
    monkeypatch: pytest.MonkeyPatch,
    seconds: Callable[[int, str], float],
    medium: str = "network",
) -> int | None:
    monkeypatch.setattr(
        tuning, "time_allreduce", lambda communicator, size, name: seconds(size, name)
    )
    monkeypatch.setattr(ThreadCommunicator, "medium", medium)
    return run_ranks(2, lambda communicator: choose_ring_from(communicator).size_bytes)[0]


def seconds(ring: float, mpi: float) -> Callable[[int, str], float]:
    return lambda size, name: ring if name == "ring" else mpi


def test_the_ring_where_it_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_with(monkeypatch, seconds(ring=1.0, mpi=2.0)) == 0
    assert chosen_with(monkeypatch, seconds(ring=2.0, mpi=1.0)) == NEVER


def test_the_ring_for_large_arrays_where_it_wins_for_these_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_size(size: int, name: str) -> float:
        return {"ring": 1.0, "mpi": 2.0 if size == LARGE_BYTES else 0.5}[name]

    assert chosen_with(monkeypatch, by_size) == RING_FROM_BYTES


def test_no_ring_where_neighbours_do_not_reach_each_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable(self: ThreadCommunicator, array: object, algorithm: str) -> None:
        error = CommunicationError("cannot connect to rank 1")
        error.on_all_ranks = True
        raise error

    monkeypatch.setattr(ThreadCommunicator, "allreduce", unreachable)
    assert chosen_with(monkeypatch, seconds(ring=1.0, mpi=2.0)) is None
    assert caplog.messages == [
        "the ring is unavailable; using Open MPI's slower all-reduce: cannot connect to rank 1"
    ]


def test_a_rank_that_fails_alone_is_no_reason_for_another_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(self: ThreadCommunicator, array: object, algorithm: str) -> None:
        raise CommunicationError("a neighbour is gone")

    monkeypatch.setattr(ThreadCommunicator, "allreduce", gone)
    with pytest.raises(CommunicationError, match="gone"):
        chosen_with(monkeypatch, seconds(ring=1.0, mpi=2.0))


def test_a_little_slower_is_good_enough_for_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_with(monkeypatch, seconds(ring=1.1, mpi=1.0)) == 0


def test_within_one_host_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(size: int, name: str) -> float:
        raise AssertionError("measured")

    assert chosen_with(monkeypatch, never, medium="memory") is None


@pytest.mark.parametrize(
    ("size_bytes", "below", "above", "text"),
    [
        (0, "ring", "ring", "ring"),
        (RING_FROM_BYTES, "mpi", "ring", "ring from 128 KiB on"),
        (NEVER, "mpi", "mpi", "mpi"),
        (None, "mpi", "mpi", "mpi"),
    ],
)
def test_a_choice_by_size(size_bytes: int | None, below: str, above: str, text: str) -> None:
    choice = RingFrom(size_bytes)
    assert choice(RING_FROM_BYTES - 1) == below
    assert choice(RING_FROM_BYTES) == above
    assert str(choice) == text


def test_links_are_measured_alike_by_all_ranks() -> None:
    def work(communicator: Communicator) -> object:
        return measure_link(communicator, Always("mpi"))

    first, *others = run_ranks(3, work)
    assert all(other == first for other in others)


def test_links_are_measured_by_one_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of MPI's would say nothing of the ring's."""
    asked: list[str] = []
    monkeypatch.setattr(
        tuning, "time_allreduce", lambda communicator, size, name: asked.append(name) or size
    )
    run_ranks(2, lambda communicator: measure_link(communicator, RingFrom(RING_FROM_BYTES)))
    assert asked == ["ring"] * 4


def test_an_all_reduce_takes_as_long_as_its_slowest_rank() -> None:
    def work(communicator: Communicator) -> float:
        gather = communicator.allgather
        delays = [0.0, 100.0]

        def told(own: list[float]) -> list[list[float]]:
            return gather([seconds + delays[communicator.rank] for seconds in own])

        communicator.allgather = told  # type: ignore[method-assign]
        return time_allreduce(communicator, 64, "mpi")

    assert min(run_ranks(2, work)) > 100
