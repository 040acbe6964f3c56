"""Finds out whether this process is one of many, and joins them."""

from __future__ import annotations

import os

from edgeddl import machine
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator
from edgeddl.errors import CommunicationError


def connect() -> Communicator:
    """The ranks mpirun has started, or this process alone where there is no mpirun."""
    if machine.launched_rank() is None:
        return SingleCommunicator()
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
