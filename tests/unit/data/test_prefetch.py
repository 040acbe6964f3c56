"""The prefetching thread fills its buffers, and stops when closed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from edgeddl.data.prefetch import Prefetcher


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_items_come_in_order() -> None:
    prefetcher = Prefetcher(itertools.count(), buffers=2, name="in-order")
    assert [prefetcher.take() for _ in range(100)] == list(range(100))
    prefetcher.close()


def test_prefetching_stops_when_all_buffers_are_full() -> None:
    """An item in use must not be overwritten: its buffer is free when the next one is taken."""
    begun = [threading.Event() for _ in range(10)]

    def items() -> Iterator[int]:
        for number, event in enumerate(begun):
            event.set()
            yield number

    prefetcher = Prefetcher(items(), buffers=2, name="buffers")
    for number in range(5):
        assert prefetcher.take() == number
        assert begun[number + 1].wait(10)
        assert not begun[number + 2].wait(0.05)
    prefetcher.close()


def test_an_error_of_the_thread_is_raised_after_the_prepared_items() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    prefetcher = Prefetcher(items(), buffers=2, name="error")
    assert prefetcher.take() == 1
    with pytest.raises(ValueError, match="no more") as caught:
        prefetcher.take()
    assert caught.traceback[-1].name == "items"
    prefetcher.close()
    assert threads_named("error") == []


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_close_ends_the_thread(taken: int) -> None:
    prefetcher = Prefetcher(itertools.count(), buffers=2, name="closing")
    for _ in range(taken):
        prefetcher.take()
    assert len(threads_named("closing")) == 1
    prefetcher.close()
    assert threads_named("closing") == []
