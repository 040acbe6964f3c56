"""Light nodes: namespaces that share the host's file system and start in a fraction of a second."""

from __future__ import annotations

import pwd
import shlex
from pathlib import Path

from cluster.emulate import init_process, openmpi, ssh
from cluster.emulate.cgroups import NodeCgroup
from cluster.emulate.spec import ClusterSpec, NodeSpec

INIT_SCRIPT = Path(__file__).with_name("light_node.sh")
HOME = pwd.getpwnam(ssh.USER).pw_dir
# Not in the host's /tmp: Open MPI names its folders after PIDs, which are the same on all nodes.
TEMPORARY_FILES = "/run/tmp"
# Not in the home folder, which nodes share: each node keeps its own results, as a board does.
RESULTS = "/run/edgeddl"
NAMESPACES = ("--mount", "--uts", "--ipc", "--pid")


class LightNodes:
    """Starts the light nodes of a cluster, with the virtual environment `environment` active."""

    def __init__(self, spec: ClusterSpec, folder: Path, environment: Path | None) -> None:
        self._spec = spec
        self._folder = folder
        self._environment = environment

    def prepare(self) -> None:
        """Write the files that replace the host's on each node."""
        self._work.mkdir(exist_ok=True)
        for node in self._spec.nodes:
            self._write_files(node)

    def start(self, node: NodeSpec, cgroup: NodeCgroup) -> None:
        folder = self._folder / node.name
        unshare = ("unshare", *NAMESPACES, "--fork", "--kill-child")
        command = (
            *unshare, "sh", str(INIT_SCRIPT), node.name, str(folder),
            str(self._environment or ""),
        )  # fmt: skip
        init_process.start(
            command,
            node=node,
            spec=self._spec,
            cgroup=cgroup,
            folder=folder,
            variables=self.variables(),
        )

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a command on a node."""
        own = {
            "HOME": HOME,
            "LANG": "C.UTF-8",
            "TMPDIR": TEMPORARY_FILES,
            "EDGEDDL_STATE": RESULTS,
        }
        return {**own, **openmpi.activated(self._environment)}

    def inventory_variables(self) -> dict[str, str]:
        environment = {"python_env_path": str(self._environment)} if self._environment else {}
        return {**environment, "edgeddl_work": str(self._work)}

    @property
    def _work(self) -> Path:
        """Working directory of `fab train`: shared by all nodes, removed with the cluster."""
        return self._folder / "work"

    def _write_files(self, node: NodeSpec) -> None:
        folder = self._folder / node.name
        hosts = "".join(f"{other.address} {other.name}\n" for other in self._spec.nodes)
        files = {
            "etc/hostname": f"{node.name}\n",
            "etc/hosts": f"127.0.0.1 localhost\n{hosts}",
            "etc/ssh/ssh_config": ssh.render_client_config(self._spec, self._folder),
            "sshd_config": ssh.render_server_config(self._folder, node, self.variables()),
        }
        activate = ""
        if self._environment is not None:
            activate = f". {shlex.quote(str(self._environment / 'bin/activate'))}\n"
        files["shell"] = files["etc/profile.d/edgeddl.sh"] = activate
        if self._environment is not None:
            for name, text in openmpi.render_files(self._spec, self._environment).items():
                files[f"openmpi/{name}"] = text
        (folder / "private").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
