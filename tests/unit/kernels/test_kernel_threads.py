"""Results are the same from run to run, also while other threads compute."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.kernels.batch_statistics import RunningStatistics
from edgeddl.kernels.segments import SEGMENT
from edgeddl.kernels.window import Window
from tests.unit.kernels.implementations import Implementation
from tests.unit.kernels.layers import (
    PASSES,
    SAME,
    Layer,
    exact_and_limit_of,
    random,
    three_passes,
)

EPS = 2e-5
# large enough for one part per thread with three threads
LAYERS = [
    Layer((5, 24, 20, 20), 33, SAME),
    Layer((3, 130, 12, 12), 140, SAME),
    Layer((4, 24, 21, 20), 33, Window(3, 3, 2, 2, 1, 1)),
    Layer((3, 24, 13, 12), 33, Window(5, 5, ph=2, pw=2)),
    Layer((2, 130, 9, 9), 140, Window(5, 5, ph=2, pw=2)),
    Layer((2, 200, 8, 8), 300, Window(1, 1)),
    Layer((3, 33, 21, 20), 33, SAME, 33),
    Layer((3, 24, 15, 15), 36, Window(3, 3, ph=2, pw=2, dy=2, dx=2), 3),
]


def everything_else() -> list[np.ndarray]:
    x, gy = random((6, 40, 24, 24), 0), random((6, 40, 24, 24), 1)
    gamma, beta = random((2, 40), 2)
    running = RunningStatistics(*random((2, 40), 5), 0.9)
    y, statistics = kernels.batch_normalization_forward(
        x, gamma, beta, None, EPS, relu=True, running=running
    )
    known = (gamma, beta, statistics, EPS)
    window = Window(3, 3, 2, 2, 1, 1)
    pooled = kernels.max_pooling_forward(x, window)
    flat = random((3, 100_001), 3)
    segments = np.array([(0, 70_000, 0.01), (70_000, 100_001, 0.0)], SEGMENT)
    kernels.momentum_sgd(*flat, segments, 0.1, 0.9, True)
    rows = random((300, 100), 4)
    loss, gradient = kernels.softmax_cross_entropy(rows, np.arange(300, dtype=np.int32) % 100)
    return [
        y,
        *statistics,
        running.mean,
        running.var,
        *kernels.batch_normalization_backward(x, gy, *known, True)[:3],
        *kernels.batch_normalization_backward(x, gy, *known, y=y),
        kernels.relu_forward(x),
        kernels.relu_backward(y, gy),
        kernels.add(x, gy),
        kernels.channel_sums(gy),
        pooled,
        kernels.max_pooling_backward(x, pooled, pooled, window),
        kernels.average_pooling_forward(x, window),
        kernels.average_pooling_backward(pooled, x.shape, window),
        kernels.global_average_forward(x),
        kernels.global_average_backward(pooled[:, :, 0, 0], x.shape),
        np.float32(loss),
        gradient,
        flat,
    ]


WORK: dict[str, Callable[[], list[np.ndarray]]] = {
    **{str(layer): partial(three_passes, layer, *layer.arrays()) for layer in LAYERS},
    "everything else": everything_else,
}
by_work = pytest.mark.parametrize("work", WORK)


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


@by_work
def test_results_are_the_same_from_run_to_run(implementation: Implementation, work: str) -> None:
    expected = bits(WORK[work]())
    for _ in range(5):
        assert bits(WORK[work]()) == expected


@pytest.mark.usefixtures("native")
def test_a_new_thread_can_start_with_pixels_that_no_window_sees() -> None:
    """They need no workspace, and a new thread has none."""
    gy, W = random((1, 4, 3, 3), 0), random((4, 4, 1, 1), 1)
    compute = partial(kernels.convolution_input_gradient, gy, W, (1, 4, 4, 4))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(compute, Window(1, 1, 2, 2, 1, 1)).result()
    assert not found[:, :, ::2].any() and found[:, :, 1::2, 1::2].all()


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_convolution_hardly_depends_on_the_number_of_threads(
    native: Implementation, layer: Layer
) -> None:
    """Sums over all images have one part per thread, and each part adds a rounding error."""
    found = []
    for threads in (1, 2, 8, native.threads):
        native.set_threads(threads)
        found.append(three_passes(layer, *layer.arrays()))
    for name, *results in zip(PASSES, *found, strict=True):
        largest = exact_and_limit_of(layer, name)[1].max()
        assert all((abs(array - results[0]) <= largest).all() for array in results), name


def test_other_kernels_do_not_depend_on_the_number_of_threads(native: Implementation) -> None:
    found = []
    for threads in (1, 2, 8, native.threads):
        native.set_threads(threads)
        found.append(bits(everything_else()))
    assert all(one == found[0] for one in found)


@by_work
def test_results_are_the_same_while_other_threads_compute(
    native: Implementation, work: str
) -> None:
    """One Python thread at a time uses the workers. Each thread has its own workspace."""
    expected = bits(WORK[work]())
    ended = threading.Event()

    def disturb(other: str) -> None:
        while not ended.is_set():
            WORK[other]()

    others = [str(LAYERS[0]), str(LAYERS[2])]
    with ThreadPoolExecutor(4) as pool:
        disturbers = [pool.submit(disturb, other) for other in others]
        workers = [
            pool.submit(lambda: [bits(WORK[work]()) == expected for _ in range(2)])
            for _ in range(2)
        ]
        try:
            assert all(all(worker.result()) for worker in workers)
        finally:
            ended.set()
        for disturber in disturbers:
            disturber.result()


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_number_of_threads_may_change_while_others_compute(
    native: Implementation, layer: Layer
) -> None:
    """Weight gradients depend slightly on the number of threads; other results do not."""
    expected = three_passes(layer, *layer.arrays())
    limit = exact_and_limit_of(layer, "weight gradient")[1].max()

    def compute() -> list[list[np.ndarray]]:
        return [three_passes(layer, *layer.arrays()) for _ in range(6)]

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(compute) for _ in range(2)]
        for threads in [1, 4, 2, 3] * 5:
            native.set_threads(threads)
        for found in (one for result in results for one in result.result()):
            for name, array, same in zip(PASSES, found, expected, strict=True):
                if name == "weight gradient":
                    assert (abs(array - same) <= limit).all()
                else:
                    assert array.tobytes() == same.tobytes(), name
    native.set_threads(native.threads)


# Python warns about forking a process with threads, which is what this test does.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_computes_the_same_results(native: Implementation) -> None:
    work = WORK[str(LAYERS[0])]
    expected = bits(work())
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if bits(work()) == expected else 1)
        finally:
            os._exit(2)
    assert exit_code(child) == 0
    assert bits(work()) == expected


def exit_code(child: int) -> int | None:
    """Exit code of a child process. Kill it and return None if it does not exit in time."""
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
