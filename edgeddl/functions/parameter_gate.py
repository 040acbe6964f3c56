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
    gate: Gate | None = None


_current = _Current()


@contextmanager
def guarded_by(gate: Gate | None) -> Iterator[None]:
    """Within the block, inputs of this thread's functions pass this gate, if there is one."""
    previous, _current.gate = _current.gate, gate
    try:
        yield
    finally:
        _current.gate = previous


def pass_gate(inputs: Sequence[Any]) -> None:
    """To be called by a function before it reads these inputs."""
    if _current.gate is not None:
        _current.gate(inputs)
