"""Machines: nodes that boot their own Debian with systemd, like a freshly flashed board."""

from __future__ import annotations

from pathlib import Path

from cluster.emulate import host_settings, init_process, nat, openmpi, rootfs, ssh
from cluster.emulate.cgroups import NodeCgroup
from cluster.emulate.spec import ClusterSpec, NodeSpec

INIT_SCRIPT = Path(__file__).with_name("machine_node.sh")
PRIVATE = 0o600
# qemu lacks some of the system calls with which systemd passes credentials to these services.
USES_CREDENTIALS = ("systemd-sysusers", "systemd-tmpfiles-setup", "systemd-tmpfiles-setup-dev")
WITHOUT_CREDENTIALS = "[Service]\nLoadCredential=\nImportCredential=\n"


class MachineNodes:
    """Starts the machines of a cluster."""

    def __init__(self, spec: ClusterSpec, folder: Path) -> None:
        self._spec = spec
        self._folder = folder

    def prepare(self) -> None:
        for node in self._spec.nodes:
            self._write_files(node)
        nat.enable(self._spec)

    def start(self, node: NodeSpec, cgroup: NodeCgroup) -> None:
        folder = self._folder / node.name
        command = (
            "unshare", "--mount", "sh", str(INIT_SCRIPT), node.name, str(folder),
            str(rootfs.root_path(self._spec.suite, self._spec.arch)),
            binfmt_name(self._spec.name), rootfs.emulator(self._spec.arch),
        )  # fmt: skip
        # Machines use cgroups of version 2 even if the host's limits are of version 1: current
        # systemd requires it, and boards have it.
        variables = {**self.variables(), "UNIFIED_CGROUP_HIERARCHY": "1"}
        init_process.start(
            command, node=node, spec=self._spec, cgroup=cgroup, folder=folder, variables=variables
        )

    def variables(self) -> dict[str, str]:
        return {"HOME": "/root", "LANG": "C.UTF-8", "PATH": openmpi.SYSTEM_PATH}

    def inventory_variables(self) -> dict[str, str]:
        """Set the user of a flashed card, except under qemu, where sudo does not work."""
        return {} if rootfs.emulator(self._spec.arch) else {"ansible_user": "pi"}

    def _write_files(self, node: NodeSpec) -> None:
        """Write the files that are copied into the root at the first boot."""
        public = ssh.client_key(self._folder).with_suffix(".pub").read_text()
        key = ssh.host_key(self._folder, node)
        files = {
            **host_settings.machine_files(self._spec.suite),
            "etc/hostname": f"{node.name}\n",
            "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {node.name}\n",
            "etc/ssh/ssh_host_ed25519_key": key.read_text(),
            "etc/ssh/ssh_host_ed25519_key.pub": key.with_suffix(".pub").read_text(),
            "root/.ssh/authorized_keys": public,
            "home/pi/.ssh/authorized_keys": public,
        }
        if rootfs.emulator(self._spec.arch):
            for service in USES_CREDENTIALS:
                files[f"etc/systemd/system/{service}.service.d/qemu.conf"] = WITHOUT_CREDENTIALS
        for name, text in files.items():
            path = self._folder / node.name / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self._folder / node.name / "files/etc/ssh/ssh_host_ed25519_key").chmod(PRIVATE)


def binfmt_name(cluster: str) -> str:
    """Return the name under which a cluster's emulator is registered with the kernel."""
    return f"edgeddl-{cluster}"
