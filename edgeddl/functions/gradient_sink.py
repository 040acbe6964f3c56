"""Where a function writes the gradient of a parameter.

Chainer sets `param.grad` only after the whole backward pass. A function that writes the gradient to
the sink's view makes it available at once and without a copy: the view is part of the flat bucket
that is sent to the other ranks while backward continues.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np


class GradientSink(Protocol):
    """Receives gradients during backward. Parameters are opaque and compared by identity."""

    def view_for(self, parameter: Any) -> np.ndarray | None:
        """The array to write this parameter's gradient to, or None if the sink does not need it."""

    def ready(self, parameter: Any) -> None:
        """The view for this parameter now holds its gradient."""


class _Current(threading.local):
    """The sink of this thread's backward passes, if there is one."""

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
