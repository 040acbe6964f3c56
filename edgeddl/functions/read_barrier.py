"""The read barrier: called with a function's inputs before the function reads them.

The gradients of the last layers may still be travelling when a forward pass begins. The pass only
has to wait before it reads the parameters of these layers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# Called with variables, which it compares by identity.
Barrier = Callable[[Sequence[Any]], None]


class _Current(threading.local):
    """The barrier of this thread's functions."""

    barrier: Barrier | None = None


current = _Current()


@contextmanager
def read_barrier(barrier: Barrier | None) -> Iterator[None]:
    """Within the block, this thread's functions call the barrier."""
    previous, current.barrier = current.barrier, barrier
    try:
        yield
    finally:
        current.barrier = previous
