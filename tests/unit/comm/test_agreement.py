"""Ranks that run the same thing, and fail together."""

from __future__ import annotations

import logging

import pytest

from edgeddl.comm.agreement import check_agreement, describe_ranks, run_as_rank, together
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.errors import (
    CommunicationError,
    ConfigError,
    DataError,
    EdgeddlError,
    RankDisagreement,
)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([0, 1], "ranks 0-1"),
        ([0, 2], "ranks 0, 2"),
        ([0, 1, 2, 5, 7, 8], "ranks 0-2, 5, 7-8"),
    ],
)
def test_rank_numbers_for_people(ranks: list[int], text: str) -> None:
    assert describe_ranks(ranks) == text


def disagreement(*facts: dict[str, str], may_differ: tuple[str, ...] = ()) -> list[str | None]:
    """By rank: what it raises when the ranks have these facts."""

    def work(communicator: Communicator) -> str | None:
        try:
            check_agreement(communicator, facts[communicator.rank], may_differ)
        except RankDisagreement as error:
            return error.message if error.on_all_ranks else "raised by this rank alone"
        return None

    return run_ranks(len(facts), work)


def test_equal_facts_are_agreement(caplog: pytest.LogCaptureFixture) -> None:
    assert disagreement({"lr": "1", "model": "a"}, {"model": "a", "lr": "1"}) == [None, None]
    assert not caplog.records


def test_every_rank_raises_and_names_only_what_differs() -> None:
    one = {"lr": "0.1", "model": "a", "kernels": "native"}
    messages = disagreement(one, one | {"lr": "0.2"}, one)
    assert (
        messages
        == [
            "ranks do not run the same thing:\n  lr: 0.1 on ranks 0, 2, 0.2 on rank 1\n"
            "  hosts by rank: 0: thread-0, 1: thread-1, 2: thread-2"
        ]
        * 3
    )


def test_a_fact_that_a_rank_does_not_have() -> None:
    (message, _) = disagreement({"lr": "0.1", "new": "x"}, {"lr": "0.1"})
    assert message is not None and "new: x on rank 0, absent on rank 1" in message


def test_what_may_differ_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    facts = ({"kernels": "a", "lr": "1"}, {"kernels": "b", "lr": "1"}, {"kernels": "a", "lr": "1"})
    with caplog.at_level(logging.WARNING, "edgeddl"):
        assert disagreement(*facts, may_differ=("kernels",)) == [None] * 3
    assert caplog.text.count("may differ in the last bits") == 1
    assert "kernels: a on ranks 0, 2, b on rank 1" in caplog.text


def test_what_may_differ_does_not_excuse_the_rest() -> None:
    facts = ({"kernels": "a", "lr": "1"}, {"kernels": "b", "lr": "2"})
    (message, _) = disagreement(*facts, may_differ=("kernels",))
    assert message is not None and "lr: 1 on rank 0, 2 on rank 1" in message


def failures(*errors: EdgeddlError | None) -> list[EdgeddlError]:
    """By rank: what `together` raises when each rank's work raises its error."""

    def work(communicator: Communicator) -> EdgeddlError:
        own = errors[communicator.rank]

        def fail() -> None:
            if own is not None:
                raise own

        with pytest.raises(EdgeddlError) as caught:
            together(communicator, fail)
        assert caught.value.on_all_ranks
        return caught.value

    return run_ranks(len(errors), work)


def test_together_returns_each_ranks_own_result() -> None:
    assert run_ranks(3, lambda communicator: together(communicator, lambda: communicator.rank)) == [
        0, 1, 2,
    ]  # fmt: skip


def test_one_ranks_error_is_everybodys() -> None:
    for error in failures(None, CommunicationError("no port"), None):
        assert str(error) == "rank 1 (thread-1): no port"
        assert error.exit_code == 3


def test_the_same_error_everywhere_is_told_without_ranks() -> None:
    for error in failures(*(ConfigError("--lr is wrong") for _ in range(3))):
        assert isinstance(error, ConfigError) and str(error) == "--lr is wrong"


def test_different_errors_are_told_by_rank() -> None:
    for error in failures(DataError("absent"), CommunicationError("no port"), DataError("absent")):
        assert str(error) == "ranks 0, 2 (thread-0, thread-2): absent\nrank 1 (thread-1): no port"
        assert error.exit_code == 2  # the first rank's


def test_an_error_of_all_ranks_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def work(communicator: Communicator) -> int:
        error = DataError("absent")
        error.on_all_ranks = True

        def fail() -> int:
            raise error

        return run_as_rank(communicator, fail)

    assert run_ranks(3, work) == [2, 2, 2]
    assert caplog.text.count("absent") == 1


@pytest.mark.parametrize("error", [DataError("broken"), ZeroDivisionError("broken")])
def test_an_error_of_one_rank_ends_the_others(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def work(communicator: Communicator) -> int:
        def wait_or_fail() -> int:
            if communicator.rank == 1:
                raise error
            communicator.barrier()
            return 0

        return run_as_rank(communicator, wait_or_fail)

    with pytest.raises(CommunicationError):
        run_ranks(2, work)
    assert "broken" in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, ZeroDivisionError)
