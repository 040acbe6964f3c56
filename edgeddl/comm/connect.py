"""Finds out whether this process is one of many, and joins them."""

from __future__ import annotations

import os
import sys

from edgeddl import machine
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator
from edgeddl.errors import CommunicationError


def connect() -> Communicator:
    """The ranks mpirun has started, or this process alone where there is no mpirun."""
    if machine.launched_rank() is None:
        return SingleCommunicator()
    # comm/mpi.py calls MPI_Init, not the import of mpi4py. At exit MPI_Finalize is made up for.
    os.environ |= {"MPI4PY_RC_INITIALIZE": "false", "MPI4PY_RC_FINALIZE": "true"}
    try:
        from edgeddl.comm.mpi import MPICommunicator
    except (ImportError, RuntimeError) as error:
        raise CommunicationError(
            f"started by mpirun, but MPI cannot be loaded: {error}",
            hint="activate the environment on every host: . .venv/bin/activate",
        ) from None
    communicator = MPICommunicator()
    started = int(os.environ.get("OMPI_COMM_WORLD_SIZE", communicator.size))
    if communicator.size != started:
        raise CommunicationError(
            f"mpirun started {started} ranks, but this one sees {communicator.size}:"
            " mpirun and the environment's MPI are different installations",
            hint="use the environment's mpirun: . .venv/bin/activate; which mpirun",
        )
    return communicator


def disconnect() -> None:
    """MPI_Finalize, if this process is one of many. Nothing may communicate after it.

    At the interpreter's exit it would also be called, but then no thread runs that could send a
    heartbeat.
    """
    if "edgeddl.comm.mpi" in sys.modules:
        sys.modules["edgeddl.comm.mpi"].finalize()
