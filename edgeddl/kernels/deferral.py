"""Kernels that are put off, to be run together.

A kernel leaves the processor's caches full of activations, so what Python does after it, until the
next one, has its code and data fetched from memory: five times as slow as it could be. Where many
kernels are prepared first, and then run one after the other, that happens once for all of them.

Until a kernel has run its results are memory that nobody has written, and its arguments must stay
as they are. Who reads or changes them by other means than kernels calls `finish` first, or has it
done by `after`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# New arrays of kernels that wait. Forward keeps most of them anyway. Backward does not, and what
# its kernels read waits with them: there it is memory that was not needed otherwise.
MOST_BYTES = 96 << 20
MOST_BYTES_OF_BACKWARD = 48 << 20
# A kernel that writes more than this takes so long that Python's time before it does not matter.
LARGE_BYTES = 12 << 20


class _Queue(threading.local):
    """What this thread has put off, in order; `open` while it may put off more."""

    def __init__(self) -> None:
        self.open = False
        self.bytes, self.most_bytes = 0, 0
        self.calls: list[tuple[Callable[..., Any], Sequence[Any]]] = []


queue = _Queue()


@contextmanager
def deferred(most_bytes: int | None = None) -> Iterator[None]:
    """Within the block this thread's kernels may be put off; at its end all have run.

    They run before, whenever they have more new arrays than this, or a large one. If an exception
    leaves the block, those that still wait never run. A block within another leaves all of this to
    the outer one.
    """
    if queue.open:
        yield
        return
    queue.open, queue.most_bytes = True, MOST_BYTES if most_bytes is None else most_bytes
    try:
        yield
        finish()
    finally:
        queue.open = False
        queue.calls, queue.bytes = [], 0


@contextmanager
def scaled_limits(factor: float) -> Iterator[None]:
    """Within the block all limits are multiplied by `factor`, for every thread.

    A small batch then has its kernels run at the same points as a batch that is larger by
    1 / factor, so its memory can be extrapolated.
    """
    names = ("MOST_BYTES", "MOST_BYTES_OF_BACKWARD", "LARGE_BYTES")
    before = {name: globals()[name] for name in names}
    globals().update({name: int(limit * factor) for name, limit in before.items()})
    try:
        yield
    finally:
        globals().update(before)


@contextmanager
def at_once() -> Iterator[None]:
    """Within the block nothing is put off, and what was has run."""
    finish()
    before, queue.open = queue.open, False
    try:
        yield
    finally:
        queue.open = before


def put_off(function: Callable[..., Any], arguments: Sequence[Any], result_bytes: int) -> None:
    """Have a kernel run later; the queue is open."""
    queue.calls.append((function, arguments))
    queue.bytes += result_bytes
    if queue.bytes > queue.most_bytes or result_bytes > LARGE_BYTES:
        finish()


def after(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function that reads what kernels write, when all there are so far have run."""
    if queue.calls:
        queue.calls.append((function, arguments))
    else:
        function(*arguments)


def finish() -> None:
    """Run what was put off."""
    calls = queue.calls
    if not calls:
        return
    queue.calls, queue.bytes = [], 0
    before, queue.open = queue.open, False  # who is called by `after` may call kernels
    calls.reverse()
    try:
        while calls:  # what one has read or written need not wait for the others
            function, arguments = calls.pop()
            function(*arguments)
    finally:
        queue.open = before
