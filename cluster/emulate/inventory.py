"""The inventory of an emulated cluster: written by `up`, removed by `down`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster.emulate import ssh
from cluster.emulate.spec import ClusterSpec
from cluster.errors import ClusterError
from cluster.inventory_file import FOLDER, render_inventory


def default_path(cluster: str) -> Path:
    return FOLDER / f"emulated-{cluster}.yml"


def render(spec: ClusterSpec, ssh_config: Path, own: Mapping[str, str]) -> str:
    """Render the inventory; `own` are the variables that differ from provisioned boards."""
    hosts = {
        node.name: {
            "ansible_host": node.address,
            "cluster_cores": node.whole_cores,
            "cluster_memory_mib": node.memory_bytes // 2**20,
        }
        for node in spec.nodes
    }
    variables = {
        "cluster_network": spec.network,
        "cluster_head": spec.head.name,
        "ansible_user": ssh.USER,
        "ansible_ssh_common_args": f"-F {ssh_config}",
        **own,
    }
    comment = f"{_mark(spec.name)}written by `cluster.emulate up`, removed by `down`."
    return render_inventory(hosts, variables, comment)


def check(path: Path, cluster: str) -> None:
    """Raise if the file cannot be written or was not written by us: `down` will remove it."""
    if not path.parent.is_dir():
        raise ClusterError(f"--inventory {path}: folder {path.parent} does not exist")
    if path.exists() and not _is_of(cluster, path):
        raise ClusterError(
            f"--inventory {path} exists and does not belong to cluster {cluster!r}",
            hint="use another file name",
        )


def remove(path: Path, cluster: str) -> None:
    if _is_of(cluster, path):
        path.unlink()


def _is_of(cluster: str, path: Path) -> bool:
    first = f"# {_mark(cluster)}"
    return path.is_file() and path.read_text(errors="replace").startswith(first)


def _mark(cluster: str) -> str:
    return f"Emulated cluster {cluster!r}: "
