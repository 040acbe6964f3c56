"""Keys for one cluster, and configuration for sshd and ssh that uses only these keys.

The user's ~/.ssh is neither read nor changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster.emulate.host_command import run
from cluster.emulate.spec import ClusterSpec, NodeSpec

USER = "root"


def make_keys(spec: ClusterSpec, folder: Path) -> None:
    """Create a client key for all nodes, a host key per node, and a known_hosts file."""
    _make_key(client_key(folder), f"edgeddl cluster {spec.name}")
    known = []
    for node in spec.nodes:
        public = _make_key(host_key(folder, node), node.name)
        kind, key, *_ = public.split()
        known.append(f"{node.name},{node.address} {kind} {key}\n")
    known_hosts(folder).write_text("".join(known))


def _make_key(path: Path, comment: str) -> str:
    path.parent.mkdir(exist_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    return path.with_name(path.name + ".pub").read_text()


def client_key(folder: Path) -> Path:
    return folder / "id_ed25519"


def known_hosts(folder: Path) -> Path:
    return folder / "known_hosts"


def host_key(folder: Path, node: NodeSpec) -> Path:
    return folder / node.name / "ssh_host_ed25519_key"


def render_client_config(spec: ClusterSpec, folder: Path) -> str:
    """Render ssh's configuration: nodes by name, even if /etc/hosts does not have them."""
    hosts = "".join(f"Host {n.name}\n    HostName {n.address}\n" for n in spec.nodes)
    return f"""{hosts}Host *
    User {USER}
    IdentityFile {client_key(folder)}
    IdentitiesOnly yes
    UserKnownHostsFile {known_hosts(folder)}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
"""


def render_server_config(folder: Path, node: NodeSpec, environment: Mapping[str, str]) -> str:
    """Render sshd's configuration: the node's address and the cluster's key only."""
    variables = " ".join(f'"{name}={value}"' for name, value in environment.items())
    return f"""ListenAddress {node.address}
HostKey {host_key(folder, node)}
AuthorizedKeysFile {client_key(folder)}.pub
AuthenticationMethods publickey
PermitRootLogin prohibit-password
UsePAM no
PidFile none
Subsystem sftp internal-sftp
{f"SetEnv {variables}" if variables else ""}
"""
