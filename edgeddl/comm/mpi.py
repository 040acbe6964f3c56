"""Ranks as MPI processes. The only module that imports mpi4py."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import sys
import time
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from edgeddl import oom_sentinel
from edgeddl.comm.communicator import Choice, Communicator
from edgeddl.comm.ring import NeighbourGone, Ring
from edgeddl.comm.ring.connect import connect_ring
from edgeddl.errors import CommunicationError

POLLS_BEFORE_SLEEP = 20
SHORTEST_SLEEP_SECONDS, LONGEST_SLEEP_SECONDS = 0.00005, 0.002
# After a rank has failed, mpirun ends the others within this time, so they need not report it.
PATIENCE_SECONDS = 10.0


class MPICommunicator:
    """All ranks of the MPI job.

    Collectives, messages and heartbeats have separate communicators: the watchdog's thread may send
    heartbeats while another thread waits in a collective (MPI_THREAD_MULTIPLE).
    """

    def __init__(self) -> None:
        _initialize()
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise CommunicationError(
                "this MPI does not let several threads communicate (MPI_THREAD_MULTIPLE)",
                hint="use the environment's Open MPI: . .venv/bin/activate",
            )
        self.rank: int = MPI.COMM_WORLD.rank
        self.size: int = MPI.COMM_WORLD.size
        self.host: str = MPI.Get_processor_name()
        self.hosts: list[str] = MPI.COMM_WORLD.allgather(self.host)
        self.medium = "network" if len(set(self.hosts)) > 1 else "memory"
        if self.size == 1:
            self.medium = "nothing"
        self._choice: Choice = lambda size: "mpi"
        self._board = _ProgressBoard(MPI.COMM_WORLD.Dup())
        self._open()

    def _open(self) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self._messages = MPI.COMM_WORLD.Dup()
        self._ring: Ring | None = None  # connected at the first use

    def choose(self, choice: Choice) -> None:
        self._choice = choice

    def channels(self, count: int) -> list[Communicator]:
        channels = [copy.copy(self) for _ in range(count)]
        for channel in channels:
            channel._open()
        return list(channels)

    def allreduce(self, array: np.ndarray, algorithm: str | None = None) -> None:
        algorithm = algorithm or self._choice(array.nbytes)
        if algorithm == "ring":
            self._sum_by_ring(array)
        elif algorithm == "stock":
            self._comm.Allreduce(MPI.IN_PLACE, array, op=MPI.SUM)
        else:
            _wait(self._comm.Iallreduce(MPI.IN_PLACE, array, op=MPI.SUM))

    def _sum_by_ring(self, array: np.ndarray) -> None:
        if self.size == 1:
            return
        if self._ring is None:
            self._ring = connect_ring(self)
        try:
            self._ring.sum(array)
        except NeighbourGone as gone:
            time.sleep(PATIENCE_SECONDS)
            raise CommunicationError(
                f"{gone.message} ({self.hosts[gone.rank]})",
                hint="check that host and its cable, then continue with --resume auto",
            ) from None

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        _wait(self._comm.Ibcast(_as_bytes(array), root=root))

    def allgather_array(self, send: np.ndarray, receive: np.ndarray) -> None:
        _wait(self._comm.Iallgather(_as_bytes(send), _as_bytes(receive)))

    def start_send(self, array: np.ndarray, destination: int) -> _Message:
        return _Message(self._messages.Isend(_as_bytes(array), destination))

    def start_receive(self, array: np.ndarray, source: int) -> _Message:
        return _Message(self._messages.Irecv(_as_bytes(array), source))

    def gather_array(self, send: np.ndarray, receive: np.ndarray | None) -> None:
        self._comm.Gather(_as_bytes(send), None if receive is None else _as_bytes(receive))

    def allgather(self, value: Any) -> list[Any]:
        return self._comm.allgather(value)

    def barrier(self) -> None:
        self._comm.Barrier()

    def post_progress(self, count: int) -> None:
        self._board.post(count)

    def read_progress(self) -> list[tuple[int, float]]:
        return self._board.read()

    def abort(self, exit_code: int) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # the reader has closed it
                stream.flush()
        oom_sentinel.dismiss()
        MPI.COMM_WORLD.Abort(exit_code)
        os._exit(exit_code)  # not reached where MPI_Abort works

    def close(self) -> None:
        self._comm.Barrier()
        self._board.read()  # no message may be left unreceived


class _Message:
    """A pending point-to-point message."""

    def __init__(self, request: MPI.Request) -> None:
        self.is_done = request.Test


def _wait(request: MPI.Request) -> None:
    """Poll between sleeps, because MPI's own busy waiting takes processor time from computation.

    The first polls follow immediately: between ranks of one host, most requests are done by then.
    """
    for _ in range(POLLS_BEFORE_SLEEP):
        if request.Test():
            return
    pause = SHORTEST_SLEEP_SECONDS
    while not request.Test():
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_SLEEP_SECONDS)


class _ProgressBoard:
    """The last count received from each rank, by small point-to-point messages."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        now = time.monotonic()
        self._heard = [(0, now) for _ in range(comm.size)]
        self._others = [rank for rank in range(comm.size) if rank != comm.rank]
        self._sends: dict[int, tuple[MPI.Request, np.ndarray]] = {}

    def post(self, count: int) -> None:
        self._heard[self._comm.rank] = (count, time.monotonic())
        for rank in self._others:
            # A rank that does not receive its messages gets no more: they would accumulate.
            if rank in self._sends and not self._sends[rank][0].Test():
                continue
            message = np.array([count], np.int64)
            self._sends[rank] = (self._comm.Isend(message, dest=rank), message)

    def read(self) -> list[tuple[int, float]]:
        status, count = MPI.Status(), np.zeros(1, np.int64)
        # Improbe also claims the message: at the end of a run two threads receive messages.
        while message := self._comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            message.Recv(count)
            self._heard[status.Get_source()] = (int(count[0]), time.monotonic())
        now = time.monotonic()
        return [(count, now - heard) for count, heard in self._heard]


# mpi4py holds the interpreter's lock in MPI_Init and MPI_Finalize, which wait for other ranks. A
# call through ctypes does not, so this rank's heartbeats continue.
_library = ctypes.CDLL(MPI.__file__)


def _initialize() -> None:
    if MPI.Is_initialized():
        return
    provided = ctypes.c_int()
    if _library.MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(provided)):
        raise CommunicationError("MPI_Init failed", hint="mpirun's lines above say why")
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        comm.Set_errhandler(MPI.ERRORS_RETURN)  # errors become exceptions


def finalize() -> None:
    """Call MPI_Finalize; no communication may follow."""
    if MPI.Is_initialized() and not MPI.Is_finalized():
        _library.MPI_Finalize()


def _as_bytes(array: np.ndarray) -> list[Any]:
    """The array as bytes, because MPI does not know every dtype, such as half precision."""
    return [array, MPI.BYTE]
