"""The ring's plan and its sums, which equal the reference's bit for bit."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.comm.ring.binding import ring_sum
from edgeddl.comm.ring.position import Position
from edgeddl.comm.ring.reference import plan_ring
from edgeddl.errors import KernelError
from edgeddl.kernels.half_block import HALF_BLOCK, empty_blocks
from tests.unit.kernels.implementations import by_reference

SIZES = (2, 3, 4, 5, 7)
LENGTHS = (1, 2, 5, 17, 64, 1001)


@pytest.mark.parametrize(("size", "length"), list(itertools.product(SIZES, LENGTHS)))
def test_a_rank_receives_what_its_left_neighbour_sends(size: int, length: int) -> None:
    plans = [plan_ring(length, size, rank) for rank in range(size)]
    for rank, (sends, _) in enumerate(plans):
        _, receives = plans[(rank + 1) % size]
        assert sends == receives


@pytest.mark.parametrize(("size", "length"), list(itertools.product(SIZES, LENGTHS)))
def test_each_link_carries_the_least_possible_data(size: int, length: int) -> None:
    chunk = -(-length // size)
    for rank in range(size):
        sends, _ = plan_ring(length, size, rank)
        carried = sum(span.stop - span.start for span in sends)
        assert 2 * (length - chunk) <= carried <= 2 * length
        if length % size == 0:
            assert carried == 2 * (size - 1) * length // size


@pytest.mark.parametrize("size", SIZES)
def test_a_rank_sends_in_each_step_what_it_received_in_the_last_one(size: int) -> None:
    for rank in range(size):
        sends, receives = plan_ring(100 * size, size, rank)
        places = [[(span.start, span.stop) for span in spans] for spans in (sends[1:], receives)]
        assert places[0] == places[1][:-1]
        assert sends[0].start == 100 * rank


def test_one_rank_sends_nothing() -> None:
    assert plan_ring(10, 1, 0) == ([], [])


def sum_in_ring(arrays: Sequence[np.ndarray]) -> None:
    """Sum arrays in a ring: one array and one thread per rank."""
    size = len(arrays)
    pairs = [socket.socketpair() for _ in range(size)]  # from a rank to the next

    def work(rank: int) -> None:
        position = Position(rank, size, pairs[rank - 1][1], pairs[rank][0], 1, 1000)
        ring_sum(arrays[rank], position)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()
    for one in itertools.chain(*pairs):
        one.close()


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("size", "length"), [(2, 1), (3, 2), (4, 100_003), (5, 70_000)])
def test_sums_equal_the_reference(size: int, length: int, dtype: type) -> None:
    values = np.random.default_rng(0).normal(size=(size, length)).astype(dtype)
    sums, expected = list(values.copy()), list(values.copy())
    sum_in_ring(sums)
    by_reference(sum_in_ring, expected)
    for one, other in zip(sums, expected, strict=True):
        assert one.tobytes() == other.tobytes() == expected[0].tobytes()


def sum_halves(values: np.ndarray) -> list[np.ndarray]:
    blocks = [empty_blocks(values.shape[1]) for _ in values]
    for numbers, own in zip(values, blocks, strict=True):
        kernels.encode_half(numbers, own)
    sum_in_ring(blocks)
    sums = [np.empty_like(numbers) for numbers in values]
    for one, own in zip(sums, blocks, strict=True):
        kernels.decode_half(own, one)
    return sums


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize(
    ("size", "length"), [(2, 1), (2, 400_000), (3, 1024), (4, 100_003), (5, 1500)]
)
def test_sums_in_half_precision_equal_the_reference(size: int, length: int) -> None:
    values = np.random.default_rng(0).normal(size=(size, length)).astype(np.float32)
    values *= np.float32(10) ** np.linspace(-12, 6, length, dtype=np.float32)
    sums, expected = sum_halves(values), by_reference(sum_halves, values)
    for one, other in zip(sums, expected, strict=True):
        assert one.tobytes() == other.tobytes() == expected[0].tobytes()
    # Each rank rounds its own numbers, and each but the first rounds the sum that it sends on.
    magnitudes = np.abs(values).astype(np.float64).sum(axis=0)
    limit = (2 * size - 1) * (magnitudes * 2.0**-11 + magnitudes.max() * 2.0**-39)
    assert (np.abs(sums[0] - values.astype(np.float64).sum(axis=0)) <= limit).all()


@pytest.mark.usefixtures("implementation")
def test_rounding_in_half_precision_is_unbiased() -> None:
    """The sum of two 11-bit numbers is often halfway between two 11-bit numbers."""
    values = np.random.default_rng(0).normal(size=(8, 100_000)).astype(np.float32)
    exact = values.astype(np.float64).sum(axis=0)
    outwards = (sum_halves(values)[0] - exact) * np.sign(exact)
    assert abs(outwards.sum()) < 3e-5 * np.abs(exact).sum()


@pytest.mark.usefixtures("implementation")
def test_a_block_that_is_not_finite_is_nan_on_all_ranks() -> None:
    values = np.ones((3, 3000), np.float32)
    values[1, 1500] = np.inf
    for one in sum_halves(values):
        np.testing.assert_array_equal(one[:1024], 3)
        assert np.isnan(one[1024:2048]).all()
        np.testing.assert_array_equal(one[2048:], 3)


@pytest.mark.parametrize(
    ("rank", "size", "low_water"), [(-1, 2, 1), (2, 2, 1), (0, 0, 1), (0, 2, 0)]
)
def test_invalid_positions(rank: int, size: int, low_water: int) -> None:
    left, right = socket.socketpair()
    with left, right, pytest.raises(KernelError, match="invalid ring position"):
        Position(rank, size, left, right, low_water, 1000)


def test_wrong_arrays_are_rejected() -> None:
    left, right = socket.socketpair()
    position = Position(0, 2, left, right, 1, 1000)
    read_only = np.zeros(4, np.float32)
    read_only.flags.writeable = False
    for array in (
        np.zeros(4, np.int64),
        np.zeros(4, np.float16),
        np.zeros(8, np.float32)[::2],
        np.zeros(4, HALF_BLOCK)["factor"],
        read_only,
        np.zeros(4 * HALF_BLOCK.itemsize + 1, np.uint8)[1:].view(HALF_BLOCK),  # not aligned
        [1.0, 2.0],
    ):
        with pytest.raises(KernelError):
            ring_sum(array, position)  # type: ignore[arg-type]
    left.close()
    right.close()
