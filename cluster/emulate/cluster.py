"""Creates and removes an emulated cluster, and injects faults."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from cluster.emulate import cgroups, init_process, inventory, nat, network, rootfs, ssh
from cluster.emulate.cgroups import Hierarchy, NodeCgroup, find_hierarchy
from cluster.emulate.light_node import LightNodes
from cluster.emulate.machine_node import MachineNodes, binfmt_name
from cluster.emulate.spec import ClusterSpec, NodeSpec, command_line
from cluster.emulate.state import ClusterState
from cluster.errors import ClusterError

SSH_PORT = 22
NAMESPACES = ("mount", "uts", "ipc", "net", "pid", "cgroup")
BOOT_SECONDS = {"light": 20, "machine": 120}
EMULATED_BOOT_SECONDS = 600


class Nodes(Protocol):
    """A kind of node."""

    def prepare(self) -> None:
        """Create what nodes need before the first one starts."""

    def start(self, node: NodeSpec, cgroup: NodeCgroup) -> None:
        """Start a node's process 1 and return."""

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a command on a node."""

    def inventory_variables(self) -> dict[str, str]:
        """Return the inventory variables that differ from those of provisioned boards."""


@dataclass(frozen=True)
class NodeStatus:
    """The current state of a node; `state` is up, cut (its link is down) or down."""

    spec: NodeSpec
    state: str
    memory_bytes: int
    throttled: float

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class EmulatedCluster:
    """One cluster, by its name. All state is in files, so every command creates this object."""

    def __init__(self, name: str, hierarchy: Hierarchy | None = None) -> None:
        self.state = ClusterState(name)
        self._hierarchy = hierarchy or find_hierarchy()

    # Whole clusters

    def up(self, spec: ClusterSpec, *, environment: Path | None, inventory_path: Path) -> bool:
        """Create the cluster; return False if one with the same settings is already up.

        An existing cluster of this name with other settings is removed first, with everything that
        runs on it.
        """
        if spec.kind == "machine":
            rootfs.make_root(spec.suite, spec.arch)
        facts: dict[str, Any] = {
            "environment": str(environment) if environment else None,
            "inventory": str(inventory_path),
            "slowed": {},  # by node: the limits that `slow` changed
        }
        with self.state.locked():
            if self._is_up_as(spec, facts):
                return False
            network.check_free(spec)
            inventory.check(inventory_path, spec.name)
            self._clear()
            self.state.create()
            # Saved before anything is created, so that `down` can remove it even after a crash.
            self.state.save(spec, **facts)
            try:
                self._make(spec)
                own = self._nodes(spec).inventory_variables()
                inventory_path.write_text(inventory.render(spec, self.ssh_config, own))
            except BaseException:
                self._clear()
                raise
        return True

    def down(self) -> bool:
        """Remove the cluster; return whether there was one."""
        with self.state.locked():
            return self._clear()

    def status(self) -> list[NodeStatus]:
        """Return each node's current state, including limits changed by `slow`."""
        spec, facts = self.state.load()
        now = [dataclasses.replace(n, **facts["slowed"].get(n.name, {})) for n in spec.nodes]
        return [self._node_status(spec, node) for node in now]

    # Single nodes

    def kill(self, name: str) -> None:
        """Simulate a power failure: with the link down first, peers see no closed sockets."""
        with self.state.locked():
            spec, node = self._find(name)
            network.disconnect(node)
            cgroups.kill_all(self._processes(spec, node))

    def cut(self, name: str) -> None:
        """Disconnect the node from the network."""
        with self.state.locked():
            network.disconnect(self._find(name)[1])

    def restore(self, name: str) -> None:
        """Restart and reconnect the node, with the limits the cluster was created with."""
        with self.state.locked():
            spec, node = self._find(name)
            if not self._processes(spec, node):
                self._start(spec, node)
            self._apply_shares(spec, node)
            self._note_slowed(name, {})
            network.connect(node)
            self._wait_for_ssh(spec, [node])

    def slow(self, name: str, *, cores: float | None, rate_mbit: float | None) -> None:
        """Change the CPU quota or link rate, until `restore`."""
        with self.state.locked():
            spec, node = self._find(name)
            changes = {"cores": cores, "rate_mbit": rate_mbit}
            given = {key: value for key, value in changes.items() if value is not None}
            given = self.state.load()[1]["slowed"].get(name, {}) | given
            changed = dataclasses.replace(node, **given)
            if changed.cores > node.whole_cores:
                raise ClusterError(
                    f"{name}: cpu: expected at most {node.whole_cores}, not {changed.cores:g}:"
                    " a node cannot get more cores than it was created with",
                    hint=f"create the cluster again with --node {name}:cpu={changed.cores:g}",
                )
            self._apply_shares(spec, changed)
            self._note_slowed(name, given)

    def _note_slowed(self, name: str, changes: dict[str, float]) -> None:
        spec, facts = self.state.load()
        facts["slowed"].pop(name, None)
        if changes:
            facts["slowed"][name] = changes
        self.state.save(spec, **facts)

    def execute(self, name: str, command: Sequence[str]) -> NoReturn:
        """Replace this process by a command on the node, in its namespaces and limits."""
        spec, node = self._find(name)
        pids = self._processes(spec, node)
        if not pids:
            raise ClusterError(f"{name} is down", hint=command_line(spec.name, f"restore {name}"))
        variables = {**self._nodes(spec).variables(), "TERM": os.environ.get("TERM", "dumb")}
        init_process.join(node, spec, self._cgroup(spec, node))
        target = f"--target={init_process.find(pids)}"
        enter = ("nsenter", target, *(f"--{namespace}" for namespace in NAMESPACES))
        # by name: an open directory of the host would lead out of the node's mount namespace
        here = ("sh", "-c", 'cd "$0" 2>/dev/null || cd; exec "$@"', os.getcwd())
        os.execvpe(enter[0], [*enter, *here, *command], variables)

    def log_in(self, name: str, arguments: Sequence[str]) -> NoReturn:
        """Replace this process by ssh to the node."""
        self._find(name)
        config = str(self.ssh_config)
        os.execvp("ssh", ["ssh", "-F", config, "-o", "BatchMode=no", name, *arguments])

    @property
    def ssh_config(self) -> Path:
        return self.state.folder / "ssh_config"

    # Creation

    def _make(self, spec: ClusterSpec) -> None:
        ssh.make_keys(spec, self.state.folder)
        self.ssh_config.write_text(ssh.render_client_config(spec, self.state.folder))
        self._nodes(spec).prepare()
        network.make_bridge(spec)
        for node in spec.nodes:
            network.make_link(spec, node)
            self._start(spec, node)
        self._wait_for_ssh(spec, spec.nodes)

    def _start(self, spec: ClusterSpec, node: NodeSpec) -> None:
        """Start the node; its limits apply from the beginning."""
        cgroup = self._cgroup(spec, node)
        cgroup.remove()  # left by the systemd of an earlier boot
        cgroup.make()
        self._apply_shares(spec, node)
        self._nodes(spec).start(node, cgroup)

    def _nodes(self, spec: ClusterSpec) -> Nodes:
        if spec.kind == "machine":
            return MachineNodes(spec, self.state.folder)
        environment = self.state.load()[1]["environment"]
        return LightNodes(spec, self.state.folder, Path(environment) if environment else None)

    def _apply_shares(self, spec: ClusterSpec, node: NodeSpec) -> None:
        cgroup = self._cgroup(spec, node)
        cgroup.set_cores(node.cores)
        cgroup.set_memory(node.memory_bytes)
        network.set_rate(node)

    def _wait_for_ssh(self, spec: ClusterSpec, nodes: Sequence[NodeSpec]) -> None:
        deadline = time.monotonic() + self._boot_seconds(spec)
        for node in nodes:
            while not answers(node):
                if time.monotonic() > deadline or not self._processes(spec, node):
                    log = (self.state.folder / node.name / "log").read_text().splitlines()
                    raise ClusterError(f"{node.name} did not start: {'; '.join(log[-5:])}")
                time.sleep(0.02)

    def _boot_seconds(self, spec: ClusterSpec) -> float:
        is_emulated = spec.kind == "machine" and rootfs.emulator(spec.arch)
        return EMULATED_BOOT_SECONDS if is_emulated else BOOT_SECONDS[spec.kind]

    # Queries

    def _is_up_as(self, spec: ClusterSpec, facts: dict[str, Any]) -> bool:
        try:
            found = self.state.load()
        except ClusterError:  # no state, or damaged
            return False
        return found == (spec, facts) and all(node.state == "up" for node in self.status())

    def _find(self, name: str) -> tuple[ClusterSpec, NodeSpec]:
        spec, _ = self.state.load()
        return spec, spec.node(name)

    def _cgroup(self, spec: ClusterSpec, node: NodeSpec) -> NodeCgroup:
        return NodeCgroup(self._hierarchy, spec.name, node.name)

    def _processes(self, spec: ClusterSpec, node: NodeSpec) -> list[int]:
        return self._cgroup(spec, node).processes()

    def _node_status(self, spec: ClusterSpec, node: NodeSpec) -> NodeStatus:
        cgroup = self._cgroup(spec, node)
        if not cgroup.exists():  # partly created or removed
            return NodeStatus(node, "down", 0, 0.0)
        connected = "up" if network.is_connected(node) else "cut"
        state = connected if cgroup.processes() else "down"
        return NodeStatus(node, state, cgroup.memory_bytes(), cgroup.throttled())

    # Removal

    def _clear(self) -> bool:
        """Remove everything with the cluster's name, even if the state folder is damaged."""
        name = self.state.name
        nodes = network.nodes_left(name)
        nodes += [n for n in cgroups.nodes_left(self._hierarchy, name) if n not in nodes]
        for node in nodes:
            cgroup = NodeCgroup(self._hierarchy, name, node)
            while pids := sorted({*cgroup.processes(), *network.processes_in(node)}):
                cgroups.kill_all(pids)
            network.remove_node(node)
            cgroup.remove()
        network.remove_bridge(name)
        if self.state.is_last():
            network.HYSTERESIS.restore()
        nat.disable(name)
        rootfs.unregister_binfmt(binfmt_name(name))
        found = bool(nodes) or self.state.folder.exists()
        inventory.remove(self._inventory_path(), name)
        self.state.remove()
        return found

    def _inventory_path(self) -> Path:
        try:
            return Path(self.state.load()[1]["inventory"])
        except (ClusterError, KeyError):  # no state, or damaged
            return inventory.default_path(self.state.name)


def answers(node: NodeSpec) -> bool:
    """Whether the node's sshd sends its greeting."""
    try:
        with socket.create_connection((node.address, SSH_PORT), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
