"""A rank's position in a ring: its connections and how it waits."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from edgeddl.errors import KernelError


@dataclass(frozen=True)
class Position:
    """The sockets from the left and to the right neighbour.

    low_water_bytes: a waiting rank wakes up when this many bytes have arrived (SO_RCVLOWAT)
    poll_milliseconds: it also wakes up after this time, in case SO_RCVLOWAT is ignored; -1: never
    """

    rank: int
    size: int
    left: socket.socket
    right: socket.socket
    low_water_bytes: int
    poll_milliseconds: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size or self.low_water_bytes < 1:
            raise KernelError(
                f"invalid ring position: rank {self.rank} of {self.size}, low-water mark of"
                f" {self.low_water_bytes} bytes"
            )


class ConnectionLost(Exception):
    """The connection to a neighbour is closed or broken."""

    def __init__(self, is_left: bool, reason: str) -> None:
        super().__init__(reason)
        self.is_left = is_left


CLOSED = "closed by the other side"
