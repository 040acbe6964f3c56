"""The ring's plan, and its sums against plain addition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edgeddl.comm import ring
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.comm.ring import plan_ring, ring_sum, segment_length

SIZES = (2, 3, 4, 5, 7)
LENGTHS = (1, 2, 5, 17, 64, 1001)


@pytest.mark.parametrize(("size", "length"), list(itertools.product(SIZES, LENGTHS)))
def test_what_a_rank_sends_is_what_its_neighbour_receives(size: int, length: int) -> None:
    plans = [plan_ring(length, size, rank, segment=3) for rank in range(size)]
    for rank, plan in enumerate(plans):
        sent = [(piece.start, piece.stop, piece.adds) for piece in plan.sends]
        received = plans[(rank + 1) % size].receives
        assert sent == [(piece.start, piece.stop, piece.adds) for piece in received]


@pytest.mark.parametrize(("size", "length"), list(itertools.product(SIZES, LENGTHS)))
def test_each_link_carries_the_least_possible(size: int, length: int) -> None:
    chunk = -(-length // size)
    for rank in range(size):
        plan = plan_ring(length, size, rank, segment=4)
        carried = sum(piece.stop - piece.start for piece in plan.sends)
        assert 2 * (length - chunk) <= carried <= 2 * length
        if length % size == 0:
            assert carried == 2 * (size - 1) * length // size


@pytest.mark.parametrize("size", SIZES)
def test_a_piece_is_sent_on_only_after_it_has_arrived(size: int) -> None:
    for rank in range(size):
        plan = plan_ring(100, size, rank, segment=3)
        for index, piece in enumerate(plan.sends[plan.own :]):
            arrived = plan.receives[index]
            assert (piece.start, piece.stop) == (arrived.start, arrived.stop)


@pytest.mark.parametrize(("size", "length"), list(itertools.product((1, *SIZES), (0, *LENGTHS))))
def test_sums_equal_plain_addition(size: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "SMALLEST_SEGMENT_BYTES", 16)  # several to a chunk
    monkeypatch.setattr(ring, "WINDOW", 3)
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


@pytest.mark.parametrize("size", SIZES)
def test_no_chunk_ends_in_a_crumb(size: int) -> None:
    length = 2**20  # a bucket of 4 MiB
    plan = plan_ring(length, size, 0, segment_length(length, size, 4))
    assert plan.own == ring.SEGMENTS_PER_CHUNK


def test_an_array_that_is_not_contiguous_is_refused() -> None:
    def work(communicator: Communicator) -> None:
        ring_sum(communicator, np.zeros((10, 10), np.float32)[:, ::2])

    with pytest.raises(ValueError, match="not contiguous"):
        run_ranks(2, work)


def test_segments_are_neither_tiny_nor_huge() -> None:
    assert segment_length(100, 4, 4) * 4 == ring.SMALLEST_SEGMENT_BYTES
    assert segment_length(2**20, 4, 4) * 4 == 2**18  # a bucket of 4 MiB: four to a chunk
    assert segment_length(2**30, 4, 4) * 4 == ring.LARGEST_SEGMENT_BYTES


def test_another_ranks_end_ends_the_ring() -> None:
    def work(communicator: Communicator) -> None:
        if communicator.rank == 1:
            raise ZeroDivisionError("rank 1")
        ring_sum(communicator, np.zeros(1000, np.float32))

    with pytest.raises(ZeroDivisionError):
        run_ranks(3, work)
