"""Queued kernel calls: when they run, in which order, and that results are read after that."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels import deferral
from edgeddl.kernels.deferral import after, at_once, deferred, finish, put_off
from edgeddl.kernels.layout import channels_last, kernel_order
from edgeddl.kernels.moments import Moments, Running
from edgeddl.kernels.prologue import Prologue
from edgeddl.kernels.window import Window
from tests.unit.kernels.layers import random


class Log:
    """Records which calls have run."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def put_off(self, note: str, result_bytes: int = 0) -> None:
        put_off(self.notes.append, [note], result_bytes)


@pytest.fixture
def log() -> Log:
    return Log()


def test_queued_calls_run_in_order_at_the_end(log: Log) -> None:
    with deferred():
        log.put_off("a")
        after(log.notes.append, "b")
        log.put_off("c")
        assert log.notes == []
    assert log.notes == ["a", "b", "c"]


def test_finish_runs_queued_calls_and_leaves_the_queue_open(log: Log) -> None:
    with deferred():
        log.put_off("a")
        finish()
        assert log.notes == ["a"]
        log.put_off("b")
        assert log.notes == ["a"]
    assert log.notes == ["a", "b"]


def test_after_runs_immediately_if_the_queue_is_empty(log: Log) -> None:
    after(log.notes.append, "a")
    assert log.notes == ["a"]
    with deferred():
        after(log.notes.append, "b")
        assert log.notes == ["a", "b"]


def test_the_queue_is_flushed_above_its_memory_limit(log: Log) -> None:
    with deferred(most_bytes=100):
        log.put_off("a", 100)
        assert log.notes == []
        log.put_off("b", 1)
        assert log.notes == ["a", "b"]
        log.put_off("c", 100)
        assert log.notes == ["a", "b"]


def test_a_large_result_flushes_the_queue(log: Log) -> None:
    with deferred(most_bytes=10 * deferral.LARGE_BYTES):
        log.put_off("a", deferral.LARGE_BYTES)
        assert log.notes == []
        log.put_off("b", deferral.LARGE_BYTES + 1)
        assert log.notes == ["a", "b"]


def test_nested_blocks_flush_at_the_end_of_the_outer_block(log: Log) -> None:
    with deferred():
        with deferred():
            log.put_off("a")
        assert log.notes == []
    assert log.notes == ["a"]


def test_an_exception_discards_queued_calls(log: Log) -> None:
    def fail() -> None:
        with deferred():
            log.put_off("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    finish()
    assert log.notes == []
    assert not deferral.queue.open


def test_a_failing_call_discards_the_calls_after_it(log: Log) -> None:
    def fail() -> None:
        with deferred():
            put_off(divmod, (1, 0), 0)
            log.put_off("a")

    with pytest.raises(ZeroDivisionError):
        fail()
    finish()
    assert log.notes == []
    assert not deferral.queue.open


def test_at_once_flushes_and_suspends_the_queue(log: Log) -> None:
    with deferred():
        log.put_off("a")
        with at_once():
            assert log.notes == ["a"]
            assert not deferral.queue.open
        assert deferral.queue.open


def test_kernels_called_by_a_queued_function_run_immediately(log: Log) -> None:
    def look() -> None:
        log.notes.append(f"open: {deferral.queue.open}")

    with deferred():
        log.put_off("a")
        after(look)
        log.put_off("b")
    assert log.notes == ["a", "open: False", "b"]


def test_each_thread_has_its_own_queue(log: Log) -> None:
    seen = []
    with deferred():
        log.put_off("a")
        thread = threading.Thread(target=lambda: (finish(), seen.append(deferral.queue.open)))
        thread.start()
        thread.join()
        assert (log.notes, seen) == ([], [False])


def convolutions() -> list[np.ndarray]:
    """Arguments that may be copied have gaps and are themselves queued results."""
    x, W, window = random((3, 5, 9, 9), 0), random((6, 5, 3, 3), 1), Window(3, 3, ph=1, pw=1)
    y = kernels.convolution_forward(x, W, None, window)
    z = kernels.convolution_forward(y[:, ::2], random((4, 3, 3, 3), 2), None, window)
    gW, in_order = np.empty((6, 5, 3, 3), np.float32), kernel_order(random((4, 3, 3, 3), 3))
    kernels.convolution_weight_gradient(x, y, window, out=gW)
    kernels.convolution_weight_gradient(y[:, ::2], z, window, out=in_order)
    again = kernels.convolution_forward(x, gW, None, window)
    turned = kernels.convolution_input_gradient(y, W, x.shape, window, plus=x)
    return [y, z, gW, in_order, again, turned]


def normalisations() -> list[np.ndarray]:
    x, vectors = random((3, 5, 9, 9), 0), random((4, 10), 1)
    gamma, beta = vectors[0, ::2], vectors[1, ::2]
    running = Running(vectors[2, ::2], np.abs(vectors[3, ::2]), 0.9)
    y, moments = kernels.batch_normalization_forward(
        x, gamma, beta, None, 1e-5, relu=True, running=running
    )
    found, _ = kernels.batch_normalization_prologue(x, gamma, beta, None, 1e-5, running)
    given, _ = kernels.batch_normalization_prologue(x, gamma, beta, Moments(*running[:2]), 1e-5)
    every_other = Prologue(given.scale[::2], given.shift[::2])
    z = kernels.convolution_forward(
        y[:, ::2], random((4, 3, 1, 1), 2), None, Window(1, 1), 1, every_other
    )
    gradients = kernels.batch_normalization_backward(x, y, gamma, beta, moments, 1e-5, True)
    return [vectors, y, z, *found, *(array for array in gradients if array is not None)]


def heads() -> list[np.ndarray]:
    x, W, b, t = random((4, 6, 5, 5), 0), random((7, 3), 1), random((7,), 2), np.arange(4)
    pooled = kernels.max_pooling_forward(x, Window(3, 3, 2, 2))
    mean = kernels.global_average_forward(kernels.relu_forward(pooled))
    logits = kernels.linear_forward(mean[:, ::2], W, b)
    loss, gradient = kernels.softmax_cross_entropy(logits, t.astype(np.int32))
    gW = kernels.linear_weight_gradient(mean[:, ::2], gradient)
    wide = kernels.linear_input_gradient(gradient, random((7, 12), 3))
    spread = kernels.global_average_backward(wide[:, ::2], pooled.shape)
    sums = kernels.channel_sums(kernels.add(spread, spread))
    return [logits, np.array(loss), gradient, gW, spread, sums]


@pytest.mark.usefixtures("native", "unwritten")
@pytest.mark.parametrize("run", [convolutions, normalisations, heads])
def test_queued_kernels_give_the_same_results(run: Callable[[], list[np.ndarray]]) -> None:
    expected = run()
    with deferred():
        found = run()
    for ours, theirs in zip(found, expected, strict=True):
        assert np.isfinite(theirs).all()
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("native")
def test_queued_calls_keep_their_arguments_alive() -> None:
    def image(seed: int) -> np.ndarray:
        return channels_last(random((2, 3, 4, 4), seed))

    def read_only(array: np.ndarray) -> np.ndarray:
        array.flags.writeable = False
        return array

    with deferred():
        total = kernels.relu_forward(kernels.add(read_only(image(0)), image(1)))
        for seed in range(50):  # would reuse freed memory
            image(seed)
    np.testing.assert_array_equal(total, np.maximum(image(0) + image(1), 0))


@pytest.mark.usefixtures("native")
def test_only_newly_allocated_results_count_towards_the_limit() -> None:
    x, gy, ones = channels_last(random((2, 3, 8, 8), 0)), random((2, 3, 8, 8), 1), random((3,), 2)
    views = np.empty((2, 3), np.float32)
    with deferred():
        kernels.batch_normalization_backward(
            *(x, channels_last(gy), ones, ones, Moments(ones, ones**2), 1e-5, True),
            y=x,
            out_gamma=views[0],
            out_beta=views[1],
        )
        assert deferral.queue.bytes == 2 * x.nbytes  # gradients of x and of the residual


@pytest.mark.usefixtures("native")
def test_bad_arguments_raise_immediately() -> None:
    with deferred(), pytest.raises(KernelError, match="must have the shape"):
        kernels.add(random((2, 3), 0), random((2, 4), 0))
