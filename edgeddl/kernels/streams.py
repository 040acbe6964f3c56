"""What a ring all-reduce is told of the streams between neighbours, and says of them."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from edgeddl.errors import KernelError


@dataclass(frozen=True)
class Neighbours:
    """A rank's place in a ring: streams from its left and to its right neighbour.

    waking_bytes: who waits is woken when so much has arrived
    longest_sleep: milliseconds; then it looks by itself, whatever the system thinks of marks; -1:
    it never does
    """

    rank: int
    size: int
    left: socket.socket
    right: socket.socket
    waking_bytes: int
    longest_sleep: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size or self.waking_bytes < 1:
            raise KernelError(
                f"rank {self.rank} of {self.size}, woken for {self.waking_bytes} bytes:"
                " there is no such place in a ring"
            )


class StreamLost(Exception):
    """A neighbour's stream has ended."""

    def __init__(self, is_left: bool, reason: str) -> None:
        super().__init__(reason)
        self.is_left = is_left


CLOSED = "it has closed its end"
