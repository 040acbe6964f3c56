"""The ring's plan, and its sums against plain addition."""

from __future__ import annotations

import itertools
import socket
import threading

import numpy as np
import pytest

from edgeddl.comm import ring
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.comm.ring import NeighbourGone, Ring, plan_ring

SIZES = (2, 3, 4, 5, 7)
LENGTHS = (1, 2, 5, 17, 64, 1001)


@pytest.mark.parametrize(("size", "length"), list(itertools.product(SIZES, LENGTHS)))
def test_what_a_rank_sends_is_what_its_neighbour_receives(size: int, length: int) -> None:
    plans = [plan_ring(length, size, rank) for rank in range(size)]
    for rank, (sends, _) in enumerate(plans):
        _, receives = plans[(rank + 1) % size]
        assert sends == receives


@pytest.mark.parametrize(("size", "length"), list(itertools.product(SIZES, LENGTHS)))
def test_each_link_carries_the_least_possible(size: int, length: int) -> None:
    chunk = -(-length // size)
    for rank in range(size):
        sends, _ = plan_ring(length, size, rank)
        carried = sum(span.stop - span.start for span in sends)
        assert 2 * (length - chunk) <= carried <= 2 * length
        if length % size == 0:
            assert carried == 2 * (size - 1) * length // size


@pytest.mark.parametrize("size", SIZES)
def test_what_has_arrived_in_one_turn_is_sent_in_the_next(size: int) -> None:
    for rank in range(size):
        sends, receives = plan_ring(100 * size, size, rank)
        places = [[(span.start, span.stop) for span in spans] for spans in (sends[1:], receives)]
        assert places[0] == places[1][:-1]
        assert sends[0].start == 100 * rank


def test_one_rank_sends_nothing() -> None:
    assert plan_ring(10, 1, 0) == ([], [])


def ring_sum(communicator: Communicator, array: np.ndarray) -> None:
    communicator.allreduce(array, "ring")


@pytest.mark.parametrize(("size", "length"), list(itertools.product((1, *SIZES), (0, *LENGTHS))))
def test_sums_equal_plain_addition(size: int, length: int) -> None:
    values = np.random.default_rng(length).normal(size=(size, length))

    def work(communicator: Communicator) -> np.ndarray:
        array = values[communicator.rank].astype(np.float32)
        ring_sum(communicator, array)
        return array

    results = run_ranks(size, work)
    expected = values.astype(np.float32).astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(results[0], expected, rtol=1e-6, atol=1e-6)
    assert all(result.tobytes() == results[0].tobytes() for result in results)


def test_the_same_bits_every_time() -> None:
    values = np.random.default_rng(0).normal(size=(4, 200_000)).astype(np.float32)

    def work(communicator: Communicator) -> bytes:
        array = values[communicator.rank].copy()
        ring_sum(communicator, array)
        return array.tobytes()

    assert run_ranks(4, work) == run_ranks(4, work)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_arrays_of_any_size_and_kind_follow_each_other(dtype: type) -> None:
    lengths = (3, 70_001, 0, 1, 300_000, 2)

    def work(communicator: Communicator) -> None:
        for length in lengths:
            array = np.full(length, communicator.rank + 1, dtype)
            ring_sum(communicator, array)
            np.testing.assert_array_equal(array, 10)

    run_ranks(4, work)


def test_what_is_not_finite_reaches_everybody() -> None:
    def work(communicator: Communicator) -> np.ndarray:
        array = np.zeros(10, np.float32)
        array[3] = np.inf if communicator.rank == 1 else 0
        array[7] = np.nan if communicator.rank == 2 else 0
        ring_sum(communicator, array)
        return array

    for array in run_ranks(3, work):
        assert np.isposinf(array[3])
        assert np.isnan(array[7])
        assert np.isfinite(np.delete(array, [3, 7])).all()


def test_an_array_that_is_not_contiguous_is_refused() -> None:
    def work(communicator: Communicator) -> None:
        ring_sum(communicator, np.zeros((10, 10), np.float32)[:, ::2])

    with pytest.raises(ValueError, match="not contiguous"):
        run_ranks(2, work)


def test_another_ranks_end_ends_the_ring() -> None:
    def work(communicator: Communicator) -> None:
        if communicator.rank == 1:
            raise ZeroDivisionError("rank 1")
        ring_sum(communicator, np.zeros(1000, np.float32))

    with pytest.raises(ZeroDivisionError):
        run_ranks(3, work)


class DripFeed:
    """A stream through which a few bytes pass at a time, so that numbers are torn apart."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self.fileno = stream.fileno
        self.setblocking = stream.setblocking
        self.setsockopt = stream.setsockopt

    def recv_into(self, room: memoryview) -> int:
        return self._stream.recv_into(room[:3])

    def send(self, values: memoryview) -> int:
        return self._stream.send(values[:7])


@pytest.mark.parametrize("length", [1, 2, 5, 100])
def test_numbers_that_arrive_in_parts(length: int) -> None:
    size = 3
    pairs = [socket.socketpair() for _ in range(size)]
    arrays = [np.full(length, 10.0**rank, np.float32) for rank in range(size)]

    def work(rank: int) -> None:
        left, right = DripFeed(pairs[rank - 1][1]), DripFeed(pairs[rank][0])
        Ring(rank, size, left, right).sum(arrays[rank])  # type: ignore[arg-type]

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    for array in arrays:
        np.testing.assert_array_equal(array, 111.0)
    for one in itertools.chain(*pairs):
        one.close()


@pytest.mark.parametrize("kilobytes", [1, 64, 300, 1000])
def test_nobody_waits_for_more_than_can_arrive(
    kilobytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TCP, where the system wakes nobody before so many bytes are there."""
    monkeypatch.setattr(ring, "WAKING_BYTES", 2**30)
    size = 3
    with socket.create_server(("127.0.0.1", 0)) as server:
        rights = [socket.create_connection(server.getsockname()) for _ in range(size)]
        lefts = {stream.getpeername(): stream for stream in (server.accept()[0] for _ in rights)}
    arrays = [np.full(kilobytes * 256, rank, np.float32) for rank in range(size)]
    rings = [
        Ring(rank, size, lefts[rights[rank - 1].getsockname()], rights[rank])
        for rank in range(size)
    ]
    threads = [
        threading.Thread(target=one.sum, args=(array,), daemon=True)
        for one, array in zip(rings, arrays, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    for array in arrays:
        np.testing.assert_array_equal(array, 3.0)
    for one in rings:
        one.close()


def test_a_neighbour_that_is_gone_is_an_error() -> None:
    (to_right, _), (left_end, from_left) = socket.socketpair(), socket.socketpair()
    left_end.close()
    one = Ring(0, 2, from_left, to_right)
    with pytest.raises(NeighbourGone, match="a neighbour of rank 0 is gone"):
        one.sum(np.zeros(10, np.float32))
    one.close()
