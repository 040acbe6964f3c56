"""The interface through which ranks communicate.

Implementations: `mpi.MPICommunicator` (processes on boards), `local.SingleCommunicator` (one rank
without MPI) and `local.ThreadCommunicator` (N ranks as threads of one process).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

# By the bytes of an array: the name of the algorithm (registry.ALGORITHMS) that sums it.
Choice = Callable[[int], str]


def optimal_bytes(payload_bytes: int, size: int) -> int:
    """The bytes that a rank sends in a bandwidth-optimal all-reduce.

    It sends (size - 1)/size of the payload in the reduce-scatter and as much in the all-gather,
    whatever order of messages MPI chooses.
    """
    return 2 * (size - 1) * payload_bytes // size


class Transfer(Protocol):
    """A pending message."""

    def is_done(self) -> bool:
        """Whether it has been sent or received; calling this also makes it progress."""


class Communicator(Protocol):
    """A fixed group of ranks. Collective calls are made by every rank, in the same order."""

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def host(self) -> str:
        """The name of the machine this rank runs on."""

    @property
    def hosts(self) -> list[str]:
        """The machines' names, by rank."""

    @property
    def medium(self) -> str:
        """What connects ranks: "nothing" (one rank), "threads", "memory" or "network"."""

    def allreduce(self, array: np.ndarray, algorithm: str | None = None) -> None:
        """Replace a contiguous array by its sum over ranks.

        None: the algorithm chosen for its size. The array has float32 or float64 numbers; the ring
        also sums blocks in half precision (kernels.half_block).
        """

    def choose(self, choice: Choice) -> None:
        """Choose algorithms for arrays from now on; the same choice on every rank."""

    def channels(self, count: int) -> list[Communicator]:
        """Communicators of the same ranks, one for each thread that calls collectives: collective.

        Ranks have to make calls in the same order within a channel, not across channels.
        """

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Replace a contiguous array by that of the root."""

    def allgather_array(self, send: np.ndarray, receive: np.ndarray) -> None:
        """Every rank's `send` becomes row `rank` of `receive` on all ranks."""

    def start_send(self, array: np.ndarray, destination: int) -> Transfer:
        """Start to send a message; the array must not change until it is done.

        Messages between two ranks arrive in order.
        """

    def start_receive(self, array: np.ndarray, source: int) -> Transfer:
        """Start to receive a message into the array."""

    def gather_array(self, send: np.ndarray, receive: np.ndarray | None) -> None:
        """Every rank's `send` becomes row `rank` of `receive` on rank 0; others pass None."""

    def allgather(self, value: Any) -> list[Any]:
        """Every rank's small Python value, by rank."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def post_progress(self, count: int) -> None:
        """Send the number of collectives this rank has begun to the others, without waiting."""

    def read_progress(self) -> list[tuple[int, float]]:
        """By rank: the last count received, and its age in seconds."""

    def abort(self, exit_code: int) -> NoReturn:
        """End all ranks immediately; does not return."""

    def close(self) -> None:
        """Leave the group: a collective call."""
