"""What edgeddl asks of the means by which ranks talk.

Implementations: `mpi.MPICommunicator` (processes on boards), `local.SingleCommunicator` (one rank
without MPI) and `local.ThreadCommunicator` (N ranks as threads of one process).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

# ring: comm.ring; mpi: MPI's own choice, waited for asleep; stock: MPI's own, which spins.
ALGORITHMS = ("ring", "mpi", "stock")
# By the bytes of an array: which of them sums it.
Choice = Callable[[int], str]


def optimal_bytes(payload_bytes: int, size: int) -> int:
    """Bytes a rank sends in a bandwidth-optimal all-reduce.

    It sends (size - 1)/size of the payload to have it summed and as much again to have the sums
    spread, whatever order of messages MPI chooses.
    """
    return 2 * (size - 1) * payload_bytes // size


class Transfer(Protocol):
    """A message under way."""

    def is_done(self) -> bool:
        """Whether it has left, or has arrived; also what makes it move on."""


class Communicator(Protocol):
    """A fixed group of ranks. Collective calls are made by every rank, in the same order."""

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def host(self) -> str:
        """The name of the machine this rank runs on."""

    @property
    def hosts(self) -> list[str]:
        """The machines' names, by rank."""

    @property
    def medium(self) -> str:
        """What lies between ranks: "nothing" (one rank), "threads", "memory" or "network"."""

    def allreduce(self, array: np.ndarray, algorithm: str | None = None) -> None:
        """Replace a contiguous array by its sum over ranks; None: as was chosen for its size.

        Of float32 or float64; the ring sums numbers in half precision (kernels.half_block), too.
        """

    def choose(self, choice: Choice) -> None:
        """From here on, sum arrays as this says; the same on every rank."""

    def lanes(self, count: int) -> list[Communicator]:
        """The same ranks several times, for as many threads that call collectives: collective.

        The order in which calls are made matters within a lane, not between lanes.
        """

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Replace a contiguous array by the root's."""

    def allgather_array(self, send: np.ndarray, receive: np.ndarray) -> None:
        """Every rank's `send` becomes row `rank` of everybody's `receive`."""

    def start_send(self, array: np.ndarray, destination: int) -> Transfer:
        """Begin to send a message; the array must not change until it is done.

        Messages between two ranks arrive in order.
        """

    def start_receive(self, array: np.ndarray, source: int) -> Transfer:
        """Begin to receive one into the array."""

    def gather_array(self, send: np.ndarray, receive: np.ndarray | None) -> None:
        """Every rank's `send` becomes row `rank` of rank 0's `receive`; the others give None."""

    def allgather(self, value: Any) -> list[Any]:
        """Every rank's small Python value, by rank."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def post_progress(self, count: int) -> None:
        """Tell the others, without waiting for them, how many collectives this rank has begun."""

    def read_progress(self) -> list[tuple[int, float]]:
        """By rank: the last count heard of, and how many seconds ago it was heard."""

    def abort(self, exit_code: int) -> NoReturn:
        """End all ranks at once; does not return."""

    def close(self) -> None:
        """Leave the group in good order: a collective call."""
