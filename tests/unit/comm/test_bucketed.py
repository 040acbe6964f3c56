"""When buckets leave, and what happens when something goes wrong on the way."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from edgeddl.comm import bucketed
from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import Bucket, ParameterSpec, plan_buckets
from edgeddl.comm.bucketed import BucketedExchange
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import SummedBucket
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.comm.policies import Policy
from edgeddl.errors import CommunicationError
from tests.support import FakeStep


class TestPolicy(Policy):
    """Sums buckets by a function, which sees late buckets as a whole."""

    __test__ = False
    splittable = False

    def __init__(self, sum_bucket: Any) -> None:
        self.sum = sum_bucket

    def sum(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        raise NotImplementedError

    def payloads(self, bucket: Bucket) -> list[int]:
        return []


class Recorder:
    """Remembers which buckets came, and signals each."""

    def __init__(self) -> None:
        self.sums: list[float] = []
        self.channels: list[Communicator] = []
        self.arrived = threading.Semaphore(0)

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        self.sums.append(float(gradients.sum()))
        self.channels.append(communicator)
        self.arrived.release()
        return gradients.nbytes


class OneOfTwo(SingleCommunicator):
    """Has no other rank, but buckets may be late."""

    size = 2


def make_exchange(
    sum_bucket: Any, *, first_is_late: bool = False
) -> tuple[BucketedExchange, dict[str, object], Arena]:
    """Three parameters, each a bucket of its own."""
    specs = [ParameterSpec(name, (16,), (0,)) for name in "abc"]
    arena = Arena(plan_buckets(specs, bucket_bytes=64))
    parameters: dict[str, object] = {name: object() for name in "abc"}
    policy = TestPolicy(sum_bucket)
    exchange = BucketedExchange(
        OneOfTwo(), arena, parameters, policy, overlap_forward=first_is_late
    )
    exchange.open()
    return exchange, parameters, arena


def produce(exchange: BucketedExchange, parameter: object, value: float) -> None:
    view = exchange.view_for(parameter)
    assert view is not None
    view[...] = value
    exchange.ready(parameter)


def take_step(exchange: BucketedExchange, parameters: dict[str, object]) -> list[tuple[int, int]]:
    """With gradients 1, 2, 3 ...; the ranges that are ready."""
    exchange.begin_step(FakeStep())
    exchange.begin_backward()
    for value, parameter in enumerate(parameters.values(), start=1):
        produce(exchange, parameter, value)
    exchange.end_backward({})
    return exchange.ready_ranges()


def test_a_bucket_leaves_while_backward_goes_on() -> None:
    recorder = Recorder()
    exchange, parameters, _ = make_exchange(recorder)
    exchange.begin_step(FakeStep())
    exchange.begin_backward()
    produce(exchange, parameters["a"], 1)
    assert recorder.arrived.acquire(timeout=10)  # before the others exist
    produce(exchange, parameters["b"], 2)
    produce(exchange, parameters["c"], 3)
    exchange.end_backward({})
    exchange.ready_ranges()
    assert sorted(recorder.sums) == [16, 32, 48]
    assert exchange.bytes_sent == 3 * 64
    exchange.close()


def test_buckets_leave_in_the_order_of_the_plan_whatever_is_ready_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bucketed, "CHANNELS", 1)
    recorder = Recorder()
    exchange, parameters, _ = make_exchange(recorder)
    exchange.begin_step(FakeStep())
    exchange.begin_backward()
    for name, value in (("c", 3), ("b", 2), ("a", 1)):
        produce(exchange, parameters[name], value)
    exchange.end_backward({})
    exchange.ready_ranges()
    assert recorder.sums == [16, 32, 48]
    exchange.close()


def test_buckets_alternate_between_channels_in_the_same_way_in_each_step() -> None:
    def work(communicator: Communicator) -> None:
        recorder = Recorder()
        specs = [ParameterSpec(name, (16,), (0,)) for name in "abcd"]
        arena = Arena(plan_buckets(specs, bucket_bytes=64))
        parameters: dict[str, object] = {name: object() for name in "abcd"}
        exchange = BucketedExchange(communicator, arena, parameters, TestPolicy(recorder))
        exchange.open()
        channel_of: dict[float, Communicator] = {}
        for _ in range(3):
            exchange.begin_step(FakeStep())
            exchange.sum_scalars(np.zeros(2))
            exchange.begin_backward()
            for value, parameter in enumerate(parameters.values()):
                produce(exchange, parameter, value)
            exchange.end_backward({})
            exchange.ready_ranges()
            for total, channel in zip(recorder.sums, recorder.channels, strict=True):
                assert channel_of.setdefault(total, channel) is channel
        exchange.close()
        first, second, *_ = [channel_of[16.0 * value] for value in range(4)]
        assert [channel_of[16.0 * value] for value in range(4)] == [first, second] * 2
        assert first is not second
        assert communicator not in (first, second)

    run_ranks(2, work)


def test_only_the_last_micro_batch_sends() -> None:
    recorder = Recorder()
    exchange, parameters, arena = make_exchange(recorder)
    exchange.begin_step(FakeStep([None] * 2))
    for value in (1, 10):
        exchange.begin_backward()
        for name in "abc":
            produce(exchange, parameters[name], value)
        exchange.end_backward({})
    exchange.ready_ranges()
    assert sorted(recorder.sums) == [16 * 11] * 3
    np.testing.assert_array_equal(arena.gradient("b"), 11)
    exchange.close()


def test_a_parameter_without_gradient_counts_as_zero() -> None:
    recorder = Recorder()
    exchange, parameters, arena = make_exchange(recorder)
    arena.gradients.fill(99)
    exchange.begin_step(FakeStep())
    exchange.begin_backward()
    produce(exchange, parameters["a"], 1)
    exchange.end_backward({"b": None, "c": np.full(16, 3, np.float32)})
    exchange.ready_ranges()
    assert sorted(recorder.sums) == [0, 16, 48]
    exchange.close()


def test_a_foreign_parameter_is_left_to_chainer() -> None:
    exchange, _, _ = make_exchange(Recorder())
    exchange.begin_step(FakeStep())
    exchange.begin_backward()
    assert exchange.view_for(object()) is None
    exchange.end_backward({})
    exchange.ready_ranges()
    exchange.close()


def test_a_parameter_unexpectedly_used_twice_is_refused() -> None:
    exchange, parameters, _ = make_exchange(Recorder())
    exchange.begin_step(FakeStep())
    exchange.begin_backward()
    produce(exchange, parameters["a"], 1)
    with pytest.raises(CommunicationError, match="uses parameter a more than once"):
        exchange.view_for(parameters["a"])


def test_a_parameter_that_another_function_uses_too_is_refused() -> None:
    """Its gradient is then a sum, of which only a part was written to the view."""
    exchange, parameters, _ = make_exchange(Recorder())
    exchange.begin_step(FakeStep())
    exchange.begin_backward()
    produce(exchange, parameters["a"], 1)
    with pytest.raises(CommunicationError, match="uses parameter a more than once"):
        exchange.end_backward({"a": np.full(16, 3, np.float32)})


def test_an_error_of_a_channel_is_raised_in_the_main_thread() -> None:
    def fail(communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        raise ConnectionResetError("cable pulled")

    exchange, parameters, _ = make_exchange(fail)
    exchange.begin_step(FakeStep())
    exchange.begin_backward()
    for name in "abc":
        produce(exchange, parameters[name], 1)
    exchange.end_backward({})
    with pytest.raises(ConnectionResetError, match="cable pulled"):
        exchange.ready_ranges()


def test_a_late_bucket_leaves_last_and_is_not_waited_for() -> None:
    released = threading.Event()
    order: list[float] = []

    def sum_bucket(communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        if gradients[0] == 1:
            assert released.wait(timeout=10)
        order.append(float(gradients[0]))
        gradients *= 2
        return gradients.nbytes

    exchange, parameters, arena = make_exchange(sum_bucket, first_is_late=True)
    assert take_step(exchange, parameters) == [(0, 0), (16, 48)]
    assert list(exchange.late_parameters) == ["a"]
    assert sorted(order) == [2, 3]
    assert exchange.bytes_sent == 2 * 64
    released.set()
    assert exchange.late_ranges() == [(0, 16)]
    assert order[-1] == 1
    np.testing.assert_array_equal(arena.gradient("a"), 2)
    assert exchange.bytes_sent == 3 * 64
    exchange.close()


def test_what_goes_wrong_with_a_late_bucket_comes_out_where_it_is_waited_for() -> None:
    def sum_bucket(communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        if gradients[0] == 1:
            raise CommunicationError("the cable is loose")
        return 0

    exchange, parameters, _ = make_exchange(sum_bucket, first_is_late=True)
    take_step(exchange, parameters)
    with pytest.raises(CommunicationError, match="the cable is loose"):
        exchange.late_ranges()


def test_observers_see_each_bucket() -> None:
    exchange, parameters, _ = make_exchange(Recorder())
    seen: list[SummedBucket] = []
    exchange.observers.append(seen.append)
    take_step(exchange, parameters)
    assert sorted(one.bucket.start for one in seen) == [0, 16, 32]
    assert all(one.gradient_bytes == one.bytes_sent == 64 for one in seen)
    assert all(one.started <= one.ended for one in seen)
    exchange.close()
