"""Ring all-reduces against plain addition, and lost connections."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.comm.ring import NeighbourGone, Ring, allreduce
from edgeddl.errors import KernelError
from edgeddl.kernels.half_block import empty_blocks
from tests.unit.kernels.implementations import FAILURES, NATIVE, REFERENCE, using

SIZES = (2, 3, 4, 5, 7)
LENGTHS = (1, 2, 5, 17, 64, 1001)


@pytest.fixture(params=["native", "reference"], autouse=True)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "native" and not NATIVE:
        pytest.skip(FAILURES)
    with using(NATIVE[0] if request.param == "native" else REFERENCE):
        yield


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_of_any_size_and_kind_follow_each_other(dtype: type) -> None:
    lengths = (3, 70_001, 0, 1, 300_000, 2)

    def work(communicator: Communicator) -> None:
        for length in lengths:
            array = np.full(length, communicator.rank + 1, dtype)
            ring_sum(communicator, array)
            np.testing.assert_array_equal(array, 10)

    run_ranks(4, work)


def test_infinity_and_nan_reach_all_ranks() -> None:
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

    with pytest.raises(KernelError, match="must be contiguous"):
        run_ranks(2, work)


def test_another_ranks_end_ends_the_ring() -> None:
    def work(communicator: Communicator) -> None:
        if communicator.rank == 1:
            raise ZeroDivisionError("rank 1")
        ring_sum(communicator, np.zeros(1000, np.float32))

    with pytest.raises(ZeroDivisionError):
        run_ranks(3, work)


def drip(source: socket.socket, destination: socket.socket) -> None:
    """Pass bytes on, a few at a time, so that numbers are torn apart."""
    while some := source.recv(3):
        destination.sendall(some)


@pytest.mark.parametrize("length", [1, 2, 5, 100])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "half"])
def test_numbers_that_arrive_in_parts(length: int, half: bool) -> None:
    size = 3
    ends = [(socket.socketpair(), socket.socketpair()) for _ in range(size)]  # from rank to next
    rings = [Ring(rank, size, ends[rank - 1][1][1], ends[rank][0][0]) for rank in range(size)]
    drips = [threading.Thread(target=drip, args=(one[1], other[0])) for one, other in ends]
    for thread in drips:
        thread.start()
    sum_numbers(rings, 40 * length if half else length, half)
    for one in rings:
        one.close()
    for thread in drips:
        thread.join()
    for before, after in ends:
        before[1].close()
        after[0].close()


def sum_numbers(rings: Sequence[Ring], length: int, half: bool) -> None:
    """Sum random numbers, in which every byte matters, and check the result."""
    numbers = np.random.default_rng(length).normal(size=(len(rings), length)).astype(np.float32)
    expected = numbers.astype(np.float64).sum(axis=0)
    arrays = list(numbers)
    if half:
        arrays = [empty_blocks(length) for _ in rings]
        for own, blocks in zip(numbers, arrays, strict=True):
            kernels.encode_half(own, blocks)
    sum_all(rings, arrays)
    if half:
        for own, blocks in zip(numbers, arrays, strict=True):
            kernels.decode_half(blocks, own)
    tolerance = 2e-2 if half else 1e-6
    for own in numbers:
        np.testing.assert_allclose(own, expected, rtol=tolerance, atol=tolerance)


def sum_all(rings: Sequence[Ring], arrays: Sequence[np.ndarray]) -> None:
    threads = [
        threading.Thread(target=one.sum, args=(array,), daemon=True)
        for one, array in zip(rings, arrays, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    for connection in (one, other):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(10)
    return one, other


@pytest.fixture
def place() -> Iterator[tuple[Ring, socket.socket, socket.socket]]:
    """Rank 0 of two over TCP, where the system heeds marks; to it and from it: the neighbour's."""
    (to_rank, left), (right, from_rank) = tcp_pair(), tcp_pair()
    one = Ring(0, 2, left, right)
    yield one, to_rank, from_rank
    for connection in (to_rank, from_rank):
        connection.close()
    one.close()


@pytest.mark.parametrize("kilobytes", [1, 64, 300, 1000])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "half"])
def test_no_rank_waits_for_more_than_can_arrive(
    kilobytes: int, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allreduce, "LOW_WATER_BYTES", 2**30)
    monkeypatch.setattr(allreduce, "POLL_MILLISECONDS", -1)
    size = 3
    pairs = [tcp_pair() for _ in range(size)]
    rings = [Ring(rank, size, pairs[rank - 1][1], pairs[rank][0]) for rank in range(size)]
    sum_numbers(rings, kilobytes * 256, half)
    for one in rings:
        one.close()


Place = tuple[Ring, socket.socket, socket.socket]


def begin_sum(one: Ring, array: np.ndarray) -> Future[None]:
    """Sum in a daemon thread."""
    summed: Future[None] = Future()

    def work() -> None:
        try:
            one.sum(array)
            summed.set_result(None)
        except NeighbourGone as gone:
            summed.set_exception(gone)

    threading.Thread(target=work, daemon=True).start()
    return summed


def test_a_torn_number_is_waited_for_to_its_last_byte(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allreduce, "POLL_MILLISECONDS", -1)
    one, to_rank, from_rank = place
    array = np.array([1, 2], np.float32)
    summing = begin_sum(one, array)
    own = np.float32(40).tobytes()
    to_rank.sendall(own[:3])
    time.sleep(0.1)  # it has taken them, and sleeps
    to_rank.sendall(own[3:])
    assert np.frombuffer(from_rank.recv(4), np.float32) == 1
    assert np.frombuffer(from_rank.recv(4), np.float32) == 42
    to_rank.sendall(np.float32(31).tobytes())
    summing.result(timeout=10)
    assert array.tolist() == [31, 42]


def test_a_waiting_rank_is_not_woken_for_a_few_bytes(place: Place) -> None:
    one, to_rank, _ = place
    summing = begin_sum(one, np.zeros(2**20, np.float32))
    deadline = time.monotonic() + 10
    mark = 0
    while mark != allreduce.LOW_WATER_BYTES and time.monotonic() < deadline:
        mark = one._left.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    assert mark == allreduce.LOW_WATER_BYTES
    to_rank.close()
    assert isinstance(summing.exception(timeout=10), NeighbourGone)


def reset(connection: socket.socket) -> None:
    """As the system does for a killed process."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_left_neighbour_that_is_gone_is_an_error(place: Place) -> None:
    one, to_rank, _ = place
    to_rank.close()
    with pytest.raises(NeighbourGone, match="the connection to rank 1 is lost: closed by"):
        begin_sum(one, np.zeros(10, np.float32)).result(timeout=10)


@pytest.mark.parametrize(
    ("leave", "reason"), [(reset, "Connection reset"), (socket.socket.close, "closed by")]
)
def test_a_right_neighbour_that_is_gone_is_noticed_while_nothing_is_to_be_sent(
    place: Place, leave: Callable[[socket.socket], None], reason: str
) -> None:
    one, _, from_rank = place
    summing = begin_sum(one, np.zeros(10, np.float32))
    from_rank.recv(20)  # its own chunk has been sent
    time.sleep(0.1)
    leave(from_rank)
    with pytest.raises(NeighbourGone, match=f"the connection to rank 1 is lost: {reason}"):
        summing.result(timeout=10)


def test_a_network_that_is_down_is_a_lost_connection(place: Place) -> None:
    one, _, _ = place
    one._left.close()
    one._left = socket.socket()  # the system reports it as not connected
    with pytest.raises(NeighbourGone, match="rank 1 is lost: Transport endpoint is not connected"):
        begin_sum(one, np.zeros(10, np.float32)).result(timeout=10)


def test_a_ring_is_closed_only_after_its_last_sum(place: Place) -> None:
    """Otherwise its file descriptor could be reused, and the sum would read another connection."""
    one, _, _ = place
    summing = begin_sum(one, np.zeros(10, np.float32))
    time.sleep(0.1)
    one.close()
    assert isinstance(summing.exception(timeout=0.1), NeighbourGone)
