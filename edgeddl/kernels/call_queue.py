"""Queues kernel calls and runs them in batches.

After a kernel the caches hold activations, so the code and data that Python needs before the next
kernel have to be fetched from memory: five times as slow as with warm caches. If many calls are
prepared first and then run one after the other, this happens once per batch.

The results of a queued call are uninitialised memory until it runs, and its arguments must not
change before. Code that reads or changes them without a kernel calls `flush` first, or passes a
function to `call_in_order`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# Limits for the new arrays of queued calls. The forward pass keeps most of them anyway. The
# backward pass does not, and a queued call also keeps its inputs alive, so the limit is lower.
MAX_BYTES = 96 << 20
MAX_BYTES_OF_BACKWARD = 48 << 20
# A kernel that writes more than this takes so long that the Python time before it does not matter.
LARGE_BYTES = 12 << 20


class _Queue(threading.local):
    """This thread's queued calls, in order; calls are queued while it is open."""

    def __init__(self) -> None:
        self.open = False
        self.bytes, self.max_bytes = 0, 0
        self.calls: list[tuple[Callable[..., Any], Sequence[Any]]] = []


queue = _Queue()


@contextmanager
def queued_calls(max_bytes: int | None = None) -> Iterator[None]:
    """Queue this thread's kernel calls within the block; at its end all of them have run.

    They also run when their new arrays exceed `max_bytes`, or when one array is large. If an
    exception leaves the block, the calls still queued are dropped. A nested block has no effect.
    """
    if queue.open:
        yield
        return
    queue.open, queue.max_bytes = True, MAX_BYTES if max_bytes is None else max_bytes
    try:
        yield
        flush()
    finally:
        queue.open = False
        queue.calls, queue.bytes = [], 0


@contextmanager
def scaled_limits(factor: float) -> Iterator[None]:
    """Multiply all limits by `factor` within the block, for every thread.

    A small batch then runs its kernels at the same points as a batch that is larger by 1 / factor,
    so its memory can be extrapolated.
    """
    names = ("MAX_BYTES", "MAX_BYTES_OF_BACKWARD", "LARGE_BYTES")
    before = {name: globals()[name] for name in names}
    globals().update({name: int(limit * factor) for name, limit in before.items()})
    try:
        yield
    finally:
        globals().update(before)


@contextmanager
def immediate_calls() -> Iterator[None]:
    """Run the queued calls, then run every call at once within the block."""
    flush()
    before, queue.open = queue.open, False
    try:
        yield
    finally:
        queue.open = before


def enqueue(function: Callable[..., Any], arguments: Sequence[Any], result_bytes: int) -> None:
    """Add a call to the queue, which must be open."""
    queue.calls.append((function, arguments))
    queue.bytes += result_bytes
    if queue.bytes > queue.max_bytes or result_bytes > LARGE_BYTES:
        flush()


def call_in_order(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function that reads kernel results, after all calls that are queued so far."""
    if queue.calls:
        queue.calls.append((function, arguments))
    else:
        function(*arguments)


def flush() -> None:
    """Run the queued calls."""
    calls = queue.calls
    if not calls:
        return
    queue.calls, queue.bytes = [], 0
    before, queue.open = queue.open, False  # functions of `call_in_order` may call kernels
    calls.reverse()
    try:
        while calls:  # popping frees each call's arrays as soon as it has run
            function, arguments = calls.pop()
            function(*arguments)
    finally:
        queue.open = before
