"""A thread that prepares the next item while the caller works on one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

from edgeddl.log import start_thread

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """Takes items from an endless iterator ahead of time.

    The iterator may make its items in `rooms` places used in turn: an item is overwritten only
    after the next one was taken. With two rooms, one item is in use while the next is prepared.
    """

    def __init__(self, items: Iterator[Item], *, rooms: int, name: str) -> None:
        self._items = items
        self._free_rooms = threading.Semaphore(rooms)
        self._ready: SimpleQueue[Item | _Failure] = SimpleQueue()
        self._room_in_use = False
        self._closing = False
        self._thread = start_thread(self._run, name)

    def take(self) -> Item:
        """The next item; ends the life of the one before. An error of the thread comes out here."""
        if self._room_in_use:
            self._room_in_use = False
            self._free_rooms.release()
        item = self._ready.get()
        if isinstance(item, _Failure):
            raise item.error
        self._room_in_use = True
        return item

    def close(self) -> None:
        """End the thread; what it has prepared is dropped."""
        self._closing = True
        self._free_rooms.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._free_rooms.acquire() and not self._closing:
                self._ready.put(next(self._items))
        except BaseException as error:
            self._ready.put(_Failure(error))


class _Failure:
    """An error of the thread, on its way to the caller."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
