"""Joins the ranks that mpirun has started, if there are any."""

from __future__ import annotations

import os
import sys

from edgeddl import machine
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator
from edgeddl.errors import CommunicationError


def connect() -> Communicator:
    """A communicator of the ranks that mpirun has started, or of a single rank without mpirun."""
    if machine.launched_rank() is None:
        return SingleCommunicator()
    # comm/mpi.py calls MPI_Init, the import of mpi4py does not. mpi4py calls MPI_Finalize at exit
    # if `disconnect` was not called.
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
    """Call MPI_Finalize, if MPI is in use; no communication may follow.

    The interpreter's exit would call it too, but then no thread could send heartbeats.
    """
    if "edgeddl.comm.mpi" in sys.modules:
        sys.modules["edgeddl.comm.mpi"].finalize()
