"""Queued kernel calls: when they run, in which order, and that nothing is read before."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels import call_queue
from edgeddl.kernels.batch_statistics import BatchStatistics, FoldedNormalization, RunningStatistics
from edgeddl.kernels.call_queue import call_in_order, enqueue, flush, immediate_calls, queued_calls
from edgeddl.kernels.layout import channels_last, kernel_order
from edgeddl.kernels.window import Window
from tests.unit.kernels.layers import random


class Log:
    """Records which calls have run."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def enqueue(self, note: str, result_bytes: int = 0) -> None:
        enqueue(self.notes.append, [note], result_bytes)


@pytest.fixture
def log() -> Log:
    return Log()


def test_queued_calls_run_in_order_at_the_end(log: Log) -> None:
    with queued_calls():
        log.enqueue("a")
        call_in_order(log.notes.append, "b")
        log.enqueue("c")
        assert log.notes == []
    assert log.notes == ["a", "b", "c"]


def test_flush_runs_them_and_the_queue_stays_open(log: Log) -> None:
    with queued_calls():
        log.enqueue("a")
        flush()
        assert log.notes == ["a"]
        log.enqueue("b")
        assert log.notes == ["a"]
    assert log.notes == ["a", "b"]


def test_call_in_order_without_queued_calls_is_immediate(log: Log) -> None:
    call_in_order(log.notes.append, "a")
    assert log.notes == ["a"]
    with queued_calls():
        call_in_order(log.notes.append, "b")
        assert log.notes == ["a", "b"]


def test_the_queue_is_flushed_when_its_arrays_exceed_the_limit(log: Log) -> None:
    with queued_calls(max_bytes=100):
        log.enqueue("a", 100)
        assert log.notes == []
        log.enqueue("b", 1)
        assert log.notes == ["a", "b"]
        log.enqueue("c", 100)
        assert log.notes == ["a", "b"]


def test_a_large_array_flushes_the_queue(log: Log) -> None:
    with queued_calls(max_bytes=10 * call_queue.LARGE_BYTES):
        log.enqueue("a", call_queue.LARGE_BYTES)
        assert log.notes == []
        log.enqueue("b", call_queue.LARGE_BYTES + 1)
        assert log.notes == ["a", "b"]


def test_a_nested_block_has_no_effect(log: Log) -> None:
    with queued_calls():
        with queued_calls():
            log.enqueue("a")
        assert log.notes == []
    assert log.notes == ["a"]


def test_an_exception_drops_queued_calls(log: Log) -> None:
    def fail() -> None:
        with queued_calls():
            log.enqueue("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    flush()
    assert log.notes == []
    assert not call_queue.queue.open


def test_a_failing_call_drops_those_after_it(log: Log) -> None:
    def fail() -> None:
        with queued_calls():
            enqueue(divmod, (1, 0), 0)
            log.enqueue("a")

    with pytest.raises(ZeroDivisionError):
        fail()
    flush()
    assert log.notes == []
    assert not call_queue.queue.open


def test_immediate_calls(log: Log) -> None:
    with queued_calls():
        log.enqueue("a")
        with immediate_calls():
            assert log.notes == ["a"]
            assert not call_queue.queue.open
        assert call_queue.queue.open


def test_functions_called_in_order_run_their_own_kernels_at_once(log: Log) -> None:
    def look() -> None:
        log.notes.append(f"open: {call_queue.queue.open}")

    with queued_calls():
        log.enqueue("a")
        call_in_order(look)
        log.enqueue("b")
    assert log.notes == ["a", "open: False", "b"]


def test_other_threads_have_their_own_queue(log: Log) -> None:
    seen = []
    with queued_calls():
        log.enqueue("a")
        thread = threading.Thread(target=lambda: (flush(), seen.append(call_queue.queue.open)))
        thread.start()
        thread.join()
        assert (log.notes, seen) == ([], [False])


def convolutions() -> list[np.ndarray]:
    """Every argument that may be copied is not contiguous, and is a result itself."""
    x, W, window = random((3, 5, 9, 9), 0), random((6, 5, 3, 3), 1), Window(3, 3, ph=1, pw=1)
    y = kernels.convolution_forward(x, W, None, window)
    z = kernels.convolution_forward(y[:, ::2], random((4, 3, 3, 3), 2), None, window)
    gW, in_order = np.empty((6, 5, 3, 3), np.float32), kernel_order(random((4, 3, 3, 3), 3))
    kernels.convolution_weight_gradient(x, y, window, out=gW)
    kernels.convolution_weight_gradient(y[:, ::2], z, window, out=in_order)
    again = kernels.convolution_forward(x, gW, None, window)
    gx = kernels.convolution_input_gradient(y, W, x.shape, window, plus=x)
    return [y, z, gW, in_order, again, gx]


def normalisations() -> list[np.ndarray]:
    x, vectors = random((3, 5, 9, 9), 0), random((4, 10), 1)
    gamma, beta = vectors[0, ::2], vectors[1, ::2]
    running = RunningStatistics(vectors[2, ::2], np.abs(vectors[3, ::2]), 0.9)
    y, statistics = kernels.batch_normalization_forward(
        x, gamma, beta, None, 1e-5, relu=True, running=running
    )
    found, _ = kernels.batch_normalization_fold(x, gamma, beta, None, 1e-5, running)
    given, _ = kernels.batch_normalization_fold(x, gamma, beta, BatchStatistics(*running[:2]), 1e-5)
    every_other = FoldedNormalization(given.scale[::2], given.shift[::2])
    z = kernels.convolution_forward(
        y[:, ::2], random((4, 3, 1, 1), 2), None, Window(1, 1), 1, every_other
    )
    gradients = kernels.batch_normalization_backward(x, y, gamma, beta, statistics, 1e-5, True)
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
def test_results_equal_those_of_immediate_calls(run: Callable[[], list[np.ndarray]]) -> None:
    expected = run()
    with queued_calls():
        found = run()
    for ours, theirs in zip(found, expected, strict=True):
        assert np.isfinite(theirs).all()
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("native")
def test_arguments_stay_alive_until_they_are_read() -> None:
    def image(seed: int) -> np.ndarray:
        return channels_last(random((2, 3, 4, 4), seed))

    def read_only(array: np.ndarray) -> np.ndarray:
        array.flags.writeable = False
        return array

    with queued_calls():
        total = kernels.relu_forward(kernels.add(read_only(image(0)), image(1)))
        for seed in range(50):  # would reuse freed memory
            image(seed)
    np.testing.assert_array_equal(total, np.maximum(image(0) + image(1), 0))


@pytest.mark.usefixtures("native")
def test_new_arrays_count_and_given_views_do_not() -> None:
    x, gy, ones = channels_last(random((2, 3, 8, 8), 0)), random((2, 3, 8, 8), 1), random((3,), 2)
    views = np.empty((2, 3), np.float32)
    with queued_calls():
        kernels.batch_normalization_backward(
            *(x, channels_last(gy), ones, ones, BatchStatistics(ones, ones**2), 1e-5, True),
            y=x,
            out_gamma=views[0],
            out_beta=views[1],
        )
        assert call_queue.queue.bytes == 2 * x.nbytes  # gradients of x and of the residual


@pytest.mark.usefixtures("native")
def test_bad_arguments_are_reported_at_once() -> None:
    with queued_calls(), pytest.raises(KernelError, match="must have the shape"):
        kernels.add(random((2, 3), 0), random((2, 4), 0))
