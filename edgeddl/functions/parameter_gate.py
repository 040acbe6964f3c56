"""Tells somebody which arrays a function is about to read.

Gradients of the last layers may still be on their way when a forward pass begins. It may begin all
the same, as long as it waits before it comes to them: functions pass their inputs through a gate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# Called with a function's inputs, variables told apart by identity, before it reads them.
Gate = Callable[[Sequence[Any]], None]


class _Current(threading.local):
    """What a function calls with its inputs before it reads them, if there is anything."""

    gate: Gate | None = None


current = _Current()


@contextmanager
def guarded_by(gate: Gate | None) -> Iterator[None]:
    """Within the block, inputs of this thread's functions pass this gate, if there is one."""
    previous, current.gate = current.gate, gate
    try:
        yield
    finally:
        current.gate = previous
