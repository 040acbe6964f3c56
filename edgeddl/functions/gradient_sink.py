"""Where a function writes the gradient of a parameter.

Chainer shows `param.grad` only after the whole backward pass. A function that asks the sink for a
view and writes there makes the gradient known at once, and without a copy: the view lies in the
flat bucket that is sent to the other ranks while backward goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np


class GradientSink(Protocol):
    """Takes gradients during backward. Parameters are opaque: told apart by identity."""

    def view_for(self, parameter: Any) -> np.ndarray | None:
        """The array to write this parameter's gradient to, or None if the sink wants none."""

    def ready(self, parameter: Any) -> None:
        """The view for this parameter now holds its gradient."""


class _Current(threading.local):
    """Who collects the gradients of this thread's backward passes, if anybody does."""

    sink: GradientSink | None = None


current = _Current()


@contextmanager
def collecting(sink: GradientSink) -> Iterator[None]:
    """Within the block, this thread's backward passes write parameter gradients to the sink."""
    previous, current.sink = current.sink, sink
    try:
        yield
    finally:
        current.sink = previous
