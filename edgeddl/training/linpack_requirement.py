"""--require-linpack: refuses to run on hosts that have not passed the LINPACK check."""

from __future__ import annotations

from edgeddl.comm.agreement import together
from edgeddl.comm.communicator import Communicator
from edgeddl.linpack.record import NodeRecord, check_passed


def require_linpack(communicator: Communicator) -> list[tuple[str, str]]:
    """Collective: host and result of each host; raises on all ranks if a host has not passed."""
    record = together(communicator, lambda: check_passed(communicator.host))
    lines = communicator.allgather((communicator.host, _describe(record)))
    return list(dict.fromkeys(lines))


def _describe(record: NodeRecord) -> str:
    day = record.time.partition("T")[0]
    figures = record.figures
    return f"{figures.gflops:.1f} GFLOPS by {figures.engine} on {day}, {record.verdict.rating}"
