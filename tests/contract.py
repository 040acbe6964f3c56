"""What every communicator must do, written once.

Unit tests run this over threads; `mpirun -n N python -m tests.contract` runs it over MPI. Each
check is a function of a communicator that all ranks call. Rank r contributes values made from r,
so what must come out is known for any number of ranks.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from edgeddl.comm.agreement import check_agreement, together
from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ParameterSpec, plan_buckets
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.connect import connect
from edgeddl.comm.make_exchange import make_exchange
from edgeddl.comm.policies import find_policy
from edgeddl.comm.policies.powersgd import PowerSGD
from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError, EdgeddlError, RankDisagreement
from edgeddl.kernels import decode_half, encode_half
from edgeddl.kernels.half_block import empty_blocks
from edgeddl.registry import ALGORITHMS
from tests.support import FakeStep

Check = Callable[[Communicator], None]

LENGTHS = (1, 2, 7, 1000, 100_003)


def check_identity(comm: Communicator) -> None:
    assert 0 <= comm.rank < comm.size
    assert len(comm.hosts) == comm.size
    assert comm.hosts[comm.rank] == comm.host


def check_allreduce_sum(comm: Communicator) -> None:
    for algorithm in (*ALGORITHMS, None):
        for dtype in (np.float32, np.float64):
            for length in LENGTHS:
                array = np.full(length, comm.rank, dtype)
                comm.allreduce(array, algorithm)
                np.testing.assert_array_equal(array, comm.size * (comm.size - 1) // 2)


def check_allreduce_of_half_precision(comm: Communicator) -> None:
    for length in LENGTHS:
        numbers = np.full(length, comm.rank, np.float32)
        blocks = empty_blocks(length)
        encode_half(numbers, blocks)
        comm.allreduce(blocks, "ring")
        decode_half(blocks, numbers)
        np.testing.assert_array_equal(numbers, comm.size * (comm.size - 1) // 2)


def check_allreduce_gives_all_ranks_the_same_bits(comm: Communicator) -> None:
    for algorithm in ALGORITHMS:
        array = np.random.default_rng(comm.rank).normal(size=100_001).astype(np.float32)
        comm.allreduce(array, algorithm)
        everybody = np.zeros((comm.size, array.size), np.float32)
        comm.allgather_array(array, everybody)
        assert all(row.tobytes() == array.tobytes() for row in everybody)


def check_allreduce_of_several_axes(comm: Communicator) -> None:
    for algorithm in ALGORITHMS:
        array = np.full((3, 5, 7), comm.rank, np.float32)
        comm.allreduce(array, algorithm)
        np.testing.assert_array_equal(array, comm.size * (comm.size - 1) // 2)


def check_the_choice_is_asked_for_each_size(comm: Communicator) -> None:
    asked: list[int] = []

    def choice(size: int) -> str:
        asked.append(size)
        return "ring" if size > 1000 else "mpi"

    comm.choose(choice)
    for length in (10, 1000):
        array = np.full(length, comm.rank, np.float32)
        comm.allreduce(array)
        np.testing.assert_array_equal(array, comm.size * (comm.size - 1) // 2)
    comm.choose(lambda size: "mpi")
    assert asked == [40, 4000] or comm.size == 1


def check_channels_do_not_mix(comm: Communicator) -> None:
    """Each rank uses two channels from two threads, in an order of its own."""
    results: dict[int, list[np.ndarray]] = {1: [], 10: []}

    def use(channel: Communicator, value: int) -> None:
        for algorithm in ALGORITHMS * 3:
            array = np.full(50_000, value, np.float32)
            channel.allreduce(array, algorithm)
            results[value].append(array)

    channels = zip(comm.channels(2), results, strict=True)
    threads = [threading.Thread(target=use, args=job) for job in channels]
    for thread in threads if comm.rank % 2 else reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    for value, arrays in results.items():
        assert len(arrays) == 3 * len(ALGORITHMS)
        for array in arrays:
            np.testing.assert_array_equal(array, comm.size * value)


def check_messages_arrive_in_order(comm: Communicator) -> None:
    if comm.size == 1:
        return
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    lengths = (3, 70_000, 5)
    received = [np.zeros(length, np.float32) for length in lengths]
    sent = [np.full(n, 10 * comm.rank + i, np.float32) for i, n in enumerate(lengths)]
    under_way = [comm.start_receive(array, left) for array in received]
    under_way += [comm.start_send(array, right) for array in sent]
    while under_way:
        under_way = [transfer for transfer in under_way if not transfer.is_done()]
    for index, array in enumerate(received):
        np.testing.assert_array_equal(array, 10 * left + index)


def check_broadcast(comm: Communicator) -> None:
    for root in {0, comm.size - 1}:
        for dtype in (np.float16, np.float32, np.uint8):
            array = np.full(1001, comm.rank, dtype)
            comm.broadcast(array, root)
            np.testing.assert_array_equal(array, root)


def check_allgather_array(comm: Communicator) -> None:
    receive = np.zeros((comm.size, 3), np.float16)
    comm.allgather_array(np.full(3, comm.rank, np.float16), receive)
    np.testing.assert_array_equal(receive, np.arange(comm.size)[:, None] * np.ones(3))


def check_gather_array(comm: Communicator) -> None:
    receive = np.zeros((comm.size, 3), np.float32) if comm.rank == 0 else None
    comm.gather_array(np.full(3, comm.rank, np.float32), receive)
    if receive is not None:
        np.testing.assert_array_equal(receive, np.arange(comm.size)[:, None] * np.ones(3))


def check_allgather_of_values(comm: Communicator) -> None:
    values = comm.allgather({"rank": comm.rank})
    assert values == [{"rank": rank} for rank in range(comm.size)]


def check_progress_reaches_the_others(comm: Communicator) -> None:
    comm.post_progress(comm.rank + 10)
    comm.barrier()
    for _ in range(1000):
        counts = [count for count, _ in comm.read_progress()]
        if comm.size == 1 or counts == [rank + 10 for rank in range(comm.size)]:
            break
    else:
        raise AssertionError(f"heard {counts}")
    comm.barrier()


def check_compressions_sum(comm: Communicator) -> None:
    """Half precision rounds what each rank has and what it sends on: by 2**-11 of the largest."""
    for kind, tolerance in (("none", 1e-6), ("fp16", 2.0**-11)):
        for length in LENGTHS:
            parts = [_gradient(rank, length) for rank in range(comm.size)]
            bucket = parts[comm.rank].copy()
            sent = _sum(kind, comm, bucket)
            limit = tolerance * (sum(abs(part).max() for part in parts) * comm.size + 1e-30)
            assert np.abs(bucket - np.sum(parts, axis=0, dtype=np.float64)).max() <= limit, kind
            assert (sent > 0) == (comm.size > 1)


def check_half_precision_sends_half(comm: Communicator) -> None:
    bucket = np.ones(100_000, np.float32)
    full = _sum("none", comm, bucket.copy())
    half = _sum("fp16", comm, bucket.copy())
    assert full == optimal_bytes(bucket.nbytes, comm.size)
    assert full / 2 <= half <= 1.01 * full / 2  # a scale in front of each block


def check_half_precision_keeps_extremes(comm: Communicator) -> None:
    """Far outside half precision's own range of 6e-8 to 65504."""
    for value in (1e-37, 1e-10, 1e8):
        bucket = np.full(101, value, np.float32)
        _sum("fp16", comm, bucket)
        np.testing.assert_allclose(bucket, value * comm.size, rtol=2e-3)


def check_half_precision_does_not_hide_divergence(comm: Communicator) -> None:
    for value in (np.inf, np.nan, 1e30):
        bucket = np.zeros(101, np.float32)
        if comm.rank == comm.size - 1:
            bucket[50] = value
        _sum("fp16", comm, bucket)
        assert comm.size == 1 or np.isnan(bucket[50])


def check_powersgd_gives_all_ranks_the_same_bits(comm: Communicator) -> None:
    """Also of its state: what ranks do not share drifts apart from step to step."""
    shapes = {"W": (40, 30), "b": (1200,)}
    specs = [ParameterSpec(n, s, tuple(range(len(s)))) for n, s in shapes.items()]
    arena = Arena(plan_buckets(specs, 10_000))
    powersgd = PowerSGD(arena.plan, 2)
    for step in range(3):
        for name, shape in shapes.items():
            arena.gradient(name)[...] = _gradient(1000 * step + comm.rank, 1200).reshape(shape)
        for bucket in arena.plan.buckets:
            powersgd.sum(comm, bucket, arena.flat_gradient(bucket))
        for array in (arena.gradients, powersgd.factors):
            if comm.size > 1:
                assert len(set(comm.allgather(array.tobytes()))) == 1


def check_exchanges_agree(comm: Communicator) -> None:
    """The bucketed exchange gives what the naive one gives, also over several micro-batches."""
    for passes in (0, 1, 3):
        naive, bucketed = (_exchange(comm, kind, passes) for kind in ("naive", "bucketed"))
        expected = sum(
            _gradient(1000 * number + rank, 57).sum()
            for number in range(passes)
            for rank in range(comm.size)
        )
        np.testing.assert_allclose(naive, bucketed, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(naive.sum(), expected, rtol=1e-3, atol=1e-6)


def check_agreement_names_the_difference(comm: Communicator) -> None:
    check_agreement(comm, {"lr": "0.1"})
    if comm.size == 1:
        return
    facts = {"model": "resnet18", "lr": "0.2" if comm.rank == comm.size - 1 else "0.1"}
    with pytest.raises(RankDisagreement) as caught:
        check_agreement(comm, facts)
    assert f"0.2 on rank {comm.size - 1}" in str(caught.value)
    assert "model" not in str(caught.value)
    check_agreement(comm, facts, may_differ=["lr"])
    with pytest.raises(RankDisagreement):
        check_agreement(comm, facts | {"seed": str(comm.rank)}, may_differ=["lr"])


def check_failure_of_one_rank_is_raised_by_all(comm: Communicator) -> None:
    assert together(comm, lambda: comm.rank) == comm.rank

    def fail() -> None:
        if comm.rank == comm.size - 1:
            raise ConfigError("no such file")

    with pytest.raises(EdgeddlError, match="no such file") as caught:
        together(comm, fail)
    assert caught.value.on_all_ranks


CONTRACT: list[Check] = [
    check for name, check in list(globals().items()) if name.startswith("check_")
]
CONTRACT.remove(check_agreement)


def _sum(kind: str, comm: Communicator, gradients: np.ndarray) -> int:
    plan = plan_buckets([ParameterSpec("b", gradients.shape, (0,))], gradients.nbytes)
    return find_policy(kind)(plan, 1).sum(comm, plan.buckets[0], gradients)


def _gradient(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=1e-3, size=length).astype(np.float32)


def _exchange(comm: Communicator, kind: str, passes: int) -> np.ndarray:
    """A step of a model of three parameters, of which the last bypasses the sink."""
    shapes = {"W": (5, 3, 2, 1), "b": (7,), "late": (20,)}
    specs = [ParameterSpec(n, s, (2, 3, 1, 0) if len(s) == 4 else (0,)) for n, s in shapes.items()]
    arena = Arena(plan_buckets(specs, bucket_bytes=64))
    parameters = {name: object() for name in shapes}
    exchange = make_exchange(TrainConfig(communicator=kind), comm, arena, parameters)
    exchange.open()
    sink = exchange.sink
    scalars = np.array([comm.rank, 1.0])
    exchange.begin_step(FakeStep([None] * passes))
    exchange.sum_scalars(scalars)
    for number in range(passes):
        values = np.split(_gradient(1000 * number + comm.rank, 57), [30, 37])
        gradients = {n: v.reshape(shapes[n]) for n, v in zip(shapes, values, strict=True)}
        sink.begin_backward()
        for name in ("W", "b"):
            view = sink.view_for(parameters[name])
            if view is not None:
                view[...] = gradients[name]
                gradients[name] = view
                sink.ready(parameters[name])
        sink.end_backward(gradients)
    assert list(exchange.ready_ranges()) == [(0, arena.plan.length)]
    exchange.close()
    np.testing.assert_array_equal(scalars, [comm.size * (comm.size - 1) / 2, comm.size])
    return np.concatenate([arena.gradient(name).ravel() for name in shapes])


def main() -> None:
    communicator = connect()
    for check in CONTRACT:
        check(communicator)
    if communicator.rank == 0:
        print(f"{len(CONTRACT)} checks hold on {communicator.size} ranks")
    communicator.close()


if __name__ == "__main__":
    sys.exit(main())
