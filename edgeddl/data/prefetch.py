"""Prepares the next item in a thread while the caller uses the current one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

from edgeddl.log import start_thread

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """Prefetches items from an endless iterator.

    The iterator may store its items in a ring of `buffers`: an item is overwritten only after the
    next one was taken. With two buffers, one item is in use while the next is prepared.
    """

    def __init__(self, items: Iterator[Item], *, buffers: int, name: str) -> None:
        self._items = items
        self._free_buffers = threading.Semaphore(buffers)
        self._ready: SimpleQueue[Item | _Failure] = SimpleQueue()
        self._buffer_in_use = False
        self._closing = False
        self._thread = start_thread(self._run, name)

    def take(self) -> Item:
        """The next item; invalidates the previous one. Raises the error of the thread, if any."""
        if self._buffer_in_use:
            self._buffer_in_use = False
            self._free_buffers.release()
        item = self._ready.get()
        if isinstance(item, _Failure):
            raise item.error
        self._buffer_in_use = True
        return item

    def close(self) -> None:
        """Stop the thread and discard the prepared items."""
        self._closing = True
        self._free_buffers.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._free_buffers.acquire() and not self._closing:
                self._ready.put(next(self._items))
        except BaseException as error:
            self._ready.put(_Failure(error))


class _Failure:
    """An error of the thread, passed to the caller."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
