"""When buckets leave, and what happens when something goes wrong on the way."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from edgeddl.comm import reducer as reducer_module
from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import Bucket, ParameterSpec, plan_buckets
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.comm.reducer import BucketReducer
from edgeddl.errors import CommunicationError


class Recorder:
    """A bucket sum that remembers which buckets came, and signals each."""

    def __init__(self) -> None:
        self.sums: list[float] = []
        self.lanes: list[Communicator] = []
        self.arrived = threading.Semaphore(0)

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        self.sums.append(float(gradients.sum()))
        self.lanes.append(communicator)
        self.arrived.release()
        return gradients.nbytes


def make_reducer(
    bucket_sum: Any, *, first_is_late: bool = False
) -> tuple[BucketReducer, dict[str, object], Arena]:
    """Three parameters, each a bucket of its own."""
    specs = [ParameterSpec(name, (16,), (0,)) for name in "abc"]
    arena = Arena(plan_buckets(specs, bucket_bytes=64))
    parameters: dict[str, object] = {name: object() for name in "abc"}
    late = arena.plan.buckets[0] if first_is_late else None
    reducer = BucketReducer(SingleCommunicator(), arena, parameters, bucket_sum, late)
    return reducer, parameters, arena


def produce(reducer: BucketReducer, parameter: object, value: float) -> None:
    view = reducer.view_for(parameter)
    assert view is not None
    view[...] = value
    reducer.ready(parameter)


def take_step(reducer: BucketReducer, parameters: dict[str, object]) -> None:
    """With gradients 1, 2, 3 ..."""
    reducer.begin_step(1)
    reducer.begin_backward()
    for value, parameter in enumerate(parameters.values(), start=1):
        produce(reducer, parameter, value)
    reducer.end_backward({})
    reducer.wait()


def test_a_bucket_leaves_while_backward_goes_on() -> None:
    recorder = Recorder()
    reducer, parameters, _ = make_reducer(recorder)
    reducer.begin_step(1)
    reducer.begin_backward()
    produce(reducer, parameters["a"], 1)
    assert recorder.arrived.acquire(timeout=10)  # before the others exist
    produce(reducer, parameters["b"], 2)
    produce(reducer, parameters["c"], 3)
    reducer.end_backward({})
    reducer.wait()
    assert sorted(recorder.sums) == [16, 32, 48]
    assert reducer.bytes_sent == 3 * 64
    reducer.close()


def test_buckets_leave_in_the_order_of_the_plan_whatever_is_ready_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reducer_module, "LANES", 1)
    recorder = Recorder()
    reducer, parameters, _ = make_reducer(recorder)
    reducer.begin_step(1)
    reducer.begin_backward()
    for name, value in (("c", 3), ("b", 2), ("a", 1)):
        produce(reducer, parameters[name], value)
    reducer.end_backward({})
    reducer.wait()
    assert recorder.sums == [16, 32, 48]
    reducer.close()


def test_buckets_take_the_lanes_in_turn_the_same_ones_in_each_step() -> None:
    def work(communicator: Communicator) -> None:
        recorder = Recorder()
        specs = [ParameterSpec(name, (16,), (0,)) for name in "abcd"]
        arena = Arena(plan_buckets(specs, bucket_bytes=64))
        parameters: dict[str, object] = {name: object() for name in "abcd"}
        reducer = BucketReducer(communicator, arena, parameters, recorder)
        lane_of: dict[float, Communicator] = {}
        for _ in range(3):
            reducer.begin_step(1)
            reducer.send_scalars(np.zeros(2))
            reducer.begin_backward()
            for value, parameter in enumerate(parameters.values()):
                produce(reducer, parameter, value)
            reducer.end_backward({})
            reducer.wait()
            for total, lane in zip(recorder.sums, recorder.lanes, strict=True):
                assert lane_of.setdefault(total, lane) is lane
        reducer.close()
        first, second, *_ = [lane_of[16.0 * value] for value in range(4)]
        assert [lane_of[16.0 * value] for value in range(4)] == [first, second] * 2
        assert first is not second
        assert communicator not in (first, second)

    run_ranks(2, work)


def test_only_the_last_micro_batch_sends() -> None:
    recorder = Recorder()
    reducer, parameters, arena = make_reducer(recorder)
    reducer.begin_step(2)
    for value in (1, 10):
        reducer.begin_backward()
        for name in "abc":
            produce(reducer, parameters[name], value)
        reducer.end_backward({})
    reducer.wait()
    assert sorted(recorder.sums) == [16 * 11] * 3
    np.testing.assert_array_equal(arena.gradient("b"), 11)
    reducer.close()


def test_a_parameter_without_gradient_counts_as_zero() -> None:
    recorder = Recorder()
    reducer, parameters, arena = make_reducer(recorder)
    arena.gradients.fill(99)
    reducer.begin_step(1)
    reducer.begin_backward()
    produce(reducer, parameters["a"], 1)
    reducer.end_backward({"b": None, "c": np.full(16, 3, np.float32)})
    reducer.wait()
    assert sorted(recorder.sums) == [0, 16, 48]
    reducer.close()


def test_a_foreign_parameter_is_left_to_chainer() -> None:
    reducer, _, _ = make_reducer(Recorder())
    reducer.begin_step(1)
    reducer.begin_backward()
    assert reducer.view_for(object()) is None
    reducer.end_backward({})
    reducer.wait()
    reducer.close()


def test_a_parameter_unexpectedly_used_twice_is_refused() -> None:
    reducer, parameters, _ = make_reducer(Recorder())
    reducer.begin_step(1)
    reducer.begin_backward()
    produce(reducer, parameters["a"], 1)
    with pytest.raises(CommunicationError, match="uses parameter a more than once"):
        reducer.view_for(parameters["a"])


def test_a_parameter_that_another_function_uses_too_is_refused() -> None:
    """Its gradient is then a sum, of which only a part was written to the view."""
    reducer, parameters, _ = make_reducer(Recorder())
    reducer.begin_step(1)
    reducer.begin_backward()
    produce(reducer, parameters["a"], 1)
    with pytest.raises(CommunicationError, match="uses parameter a more than once"):
        reducer.end_backward({"a": np.full(16, 3, np.float32)})


def test_the_threads_error_comes_out_in_wait() -> None:
    def fail(communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        raise ConnectionResetError("cable pulled")

    reducer, parameters, _ = make_reducer(fail)
    reducer.begin_step(1)
    reducer.begin_backward()
    for name in "abc":
        produce(reducer, parameters[name], 1)
    reducer.end_backward({})
    with pytest.raises(ConnectionResetError, match="cable pulled"):
        reducer.wait()


def test_a_late_bucket_leaves_last_and_is_not_waited_for() -> None:
    released = threading.Event()
    order: list[float] = []

    def bucket_sum(communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        if gradients[0] == 1:
            assert released.wait(timeout=10)
        order.append(float(gradients[0]))
        gradients *= 2
        return gradients.nbytes

    reducer, parameters, arena = make_reducer(bucket_sum, first_is_late=True)
    take_step(reducer, parameters)
    assert sorted(order) == [2, 3]
    assert reducer.bytes_sent == 2 * 64
    released.set()
    reducer.wait_late()
    assert order[-1] == 1
    np.testing.assert_array_equal(arena.gradient("a"), 2)
    assert reducer.bytes_sent == 3 * 64
    reducer.close()


def test_what_goes_wrong_with_a_late_bucket_comes_out_where_it_is_waited_for() -> None:
    def bucket_sum(communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        if gradients[0] == 1:
            raise CommunicationError("the cable is loose")
        return 0

    reducer, parameters, _ = make_reducer(bucket_sum, first_is_late=True)
    take_step(reducer, parameters)
    with pytest.raises(CommunicationError, match="the cable is loose"):
        reducer.wait_late()
