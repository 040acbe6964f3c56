"""Runs Debian's hpcc (HPL, STREAM, ping-pong) under Debian's mpirun, on one or several nodes.

hpcc is linked with Debian's Open MPI, so settings of the virtual environment's Open MPI must not
reach it. Each node runs one rank with a thread per core, as in training, so that ping-pong measures
the links.
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
    """How to start hpcc; without hosts, on this machine alone."""

    blas: Blas
    threads: int
    hosts: tuple[str, ...] = ()
    network: str | None = None


def check_installed() -> None:
    missing = [name for name in PROGRAMS if not shutil.which(name, path=SYSTEM_PATH)]
    if missing:
        raise LinpackError(
            f"--engine hpl needs Debian's hpcc, but {' and '.join(missing)} cannot be found",
            hint="sudo apt install hpcc libopenblas0-pthread libblis4-pthread",
        )


def run_hpcc(
    plan: HpccPlan, launch: Launch, title: str, timeout_seconds: float | None = None
) -> tuple[HpccResult, SensorMonitor]:
    """Run all sections of hpcc in a temporary folder."""
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
        output_lines = list(process.stdout)
        check_end(f"hpcc on {', '.join(launch.hosts) or 'this machine'}", process, output_lines)
    return monitor


def render_command(plan: HpccPlan, launch: Launch) -> list[str]:
    """Uses only options of both Open MPI 4.1 (bookworm) and 5.0 (trixie); tested with both."""
    where = ["--host", ",".join(f"{host}:1" for host in launch.hosts)] if launch.hosts else []
    passed_on = [word for name in _variables(launch) for word in ("-x", name)]
    return [
        "mpirun.openmpi", "-np", str(plan.ranks), "--map-by", "node", "--bind-to", "none",
        *where, *passed_on, "hpcc",
    ]  # fmt: skip


def _variables(launch: Launch) -> dict[str, str]:
    """Environment variables that every rank needs."""
    threads = dict.fromkeys(machine.THREAD_VARIABLES, str(launch.threads))
    return {"LD_LIBRARY_PATH": str(launch.blas.folder), **threads}


def environment(launch: Launch) -> dict[str, str]:
    own = clean_environment() | _variables(launch)
    # A waiting rank must not spin on a core that its own threads or the network need.
    own["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if launch.network:
        # Each version of Open MPI knows only some of these names. It rejects unknown options, but
        # ignores unknown variables.
        for name in ("OMPI_MCA_btl_tcp", "OMPI_MCA_oob_tcp", "PRTE_MCA_prte"):
            own[f"{name}_if_include"] = launch.network
    return own


def clean_environment() -> dict[str, str]:
    """The environment without the virtual environment and its Open MPI."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    # Containers and emulated nodes run as root; the variables have no effect for other users.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return own | allowed | {"PATH": SYSTEM_PATH, "LC_ALL": "C"}


def cluster_network(environment_folder: Path = Path(sys.prefix)) -> str | None:
    """The network in the settings file of the virtual environment's Open MPI."""
    path = environment_folder / "etc/openmpi-mca-params.conf"
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.partition("=") for line in lines)
    values = [value.strip() for name, _, value in pairs if name.strip() == INTERFACES]
    return values[-1] if values else None
