"""Predicts the memory of a pass through the model from smaller passes.

The memory of a pass is a + b * images. Two small passes of blank images give a and b. They run
with the limits of the functions (which arrays are kept, how many kernel calls are queued) scaled
down by the same factor as the batch. Otherwise a small batch would keep more memory per image than
a large one. tracemalloc counts the bytes of all arrays.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.comm.arena import Arena
from edgeddl.functions import smoothed_softmax_cross_entropy
from edgeddl.functions.backpropagation import backpropagate
from edgeddl.functions.gradient_sink import collecting
from edgeddl.functions.node import scaled_limits
from edgeddl.kernels.call_queue import queued_calls
from edgeddl.training.parameters import named_parameters
from edgeddl.training.statistics import RunningStatistics

IMAGES = (2, 3)  # of the small passes; batch normalisation needs more than one


def pass_bytes(run_pass: Callable[[int], object], images: int) -> int:
    """The extrapolated peak memory of arrays during a pass of this many images."""
    few, more = (_traced_peak(run_pass, count, count / images) for count in IMAGES)
    return max(round(few + (more - few) / (IMAGES[1] - IMAGES[0]) * (images - IMAGES[0])), 0)


def _traced_peak(run_pass: Callable[[int], object], images: int, scale: float) -> int:
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with scaled_limits(scale):
            run_pass(images)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not was_tracing:
            tracemalloc.stop()


class BlankPasses:
    """Passes of blank images through a model."""

    def __init__(self, model: chainer.Chain, arena: Arena, image_shape: tuple[int, ...]) -> None:
        self._model = model
        self._image_shape = image_shape
        self._sink = _ArenaSink(model, arena)

    def train(self, images: int) -> None:
        """Forward and backward, as the updater does them."""
        labels = np.zeros(images, np.int32)
        with chainer.using_config("train", True), collecting(self._sink):
            with queued_calls():
                loss = smoothed_softmax_cross_entropy(self._model(self._blank(images)), labels, 0.0)
                float(loss.array)
            backpropagate(loss, np.asarray(1, loss.dtype))

    def evaluate(self, images: int) -> None:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            self._model(self._blank(images))

    def _blank(self, images: int) -> np.ndarray:
        return np.zeros((images, *self._image_shape), np.float32)


@contextmanager
def without_trace(model: chainer.Chain) -> Iterator[None]:
    """After the block, running statistics and NumPy's global generator are as they were before."""
    statistics = RunningStatistics(model)
    before, random_state = statistics.flat(), np.random.get_state()
    try:
        yield
    finally:
        statistics.set_flat(before)
        np.random.set_state(random_state)
        model.cleargrads()


class _ArenaSink:
    """Writes gradients to the arena, as in training, so they take no additional memory."""

    def __init__(self, model: chainer.Chain, arena: Arena) -> None:
        parameters = named_parameters(model)
        self._views = {id(p): arena.gradient(name) for name, p in parameters.items()}

    def view_for(self, parameter: Any) -> np.ndarray | None:
        return self._views.get(id(parameter))

    def ready(self, parameter: Any) -> None:
        """Nothing to do."""
