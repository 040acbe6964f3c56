"""Brings an emulated cluster up and down, and makes its faults."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from cluster.emulate import cgroups, first_process, inventory, network, roots, ssh, way_out
from cluster.emulate.cgroups import Hierarchy, NodeCgroup, find_hierarchy
from cluster.emulate.light import LightNodes
from cluster.emulate.machine import MachineNodes, format_name
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
        """Make what nodes need before any is started."""

    def start(self, node: NodeSpec, cgroup: NodeCgroup) -> None:
        """Start a node's first process and return."""

    def variables(self) -> dict[str, str]:
        """What a command on a node finds in its process environment."""

    def inventory_variables(self) -> dict[str, str]:
        """By which these nodes differ from provisioned boards."""


@dataclass(frozen=True)
class NodeStatus:
    """How a node is doing now; `state`: up, cut (its link is down) or down."""

    spec: NodeSpec
    state: str
    memory_bytes: int
    throttled: float

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class EmulatedCluster:
    """One cluster, by its name; every command makes this object anew."""

    def __init__(self, name: str, hierarchy: Hierarchy | None = None) -> None:
        self.state = ClusterState(name)
        self._hierarchy = hierarchy or find_hierarchy()

    # Whole clusters

    def up(self, spec: ClusterSpec, *, environment: Path | None, inventory_path: Path) -> bool:
        """Make the cluster, unless it is up exactly so; says whether it was made.

        Whatever there is of another one of this name goes first, with all that runs on it.
        """
        if spec.kind == "machine":
            roots.make_root(spec.suite, spec.arch)
        facts: dict[str, Any] = {
            "environment": str(environment) if environment else None,
            "inventory": str(inventory_path),
            "slowed": {},  # by node: what `slow` has changed
        }
        with self.state.locked():
            if self._is_up_as(spec, facts):
                return False
            network.check_free(spec)
            inventory.check(inventory_path, spec.name)
            self._clear()
            self.state.create()
            # What is known before anything is made can be taken down, also after a crash.
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
        """Take away everything; says whether there was anything."""
        with self.state.locked():
            return self._clear()

    def status(self) -> list[NodeStatus]:
        """Each node as it is now, also where `slow` has changed it."""
        spec, facts = self.state.load()
        now = [dataclasses.replace(n, **facts["slowed"].get(n.name, {})) for n in spec.nodes]
        return [self._node_status(spec, node) for node in now]

    # Single nodes

    def kill(self, name: str) -> None:
        """A board loses its power: its link falls silent first, so nobody is told."""
        with self.state.locked():
            spec, node = self._find(name)
            network.disconnect(node)
            cgroups.kill_all(self._processes(spec, node))

    def cut(self, name: str) -> None:
        """The node's cable is pulled."""
        with self.state.locked():
            network.disconnect(self._find(name)[1])

    def restore(self, name: str) -> None:
        """Cable and power are there again, and the shares as the cluster was made with."""
        with self.state.locked():
            spec, node = self._find(name)
            if not self._processes(spec, node):
                self._start(spec, node)
            self._apply_shares(spec, node)
            self._note_slowed(name, {})
            network.connect(node)
            self._wait_for_ssh(spec, [node])

    def slow(self, name: str, *, cores: float | None, rate_mbit: float | None) -> None:
        """Another share of processor or link, until `restore`."""
        with self.state.locked():
            spec, node = self._find(name)
            changes = {"cores": cores, "rate_mbit": rate_mbit}
            given = {key: value for key, value in changes.items() if value is not None}
            given = self.state.load()[1]["slowed"].get(name, {}) | given
            changed = dataclasses.replace(node, **given)
            if changed.cores > node.whole_cores:
                raise ClusterError(
                    f"{name}: cpu: expected at most {node.whole_cores}, not {changed.cores:g}:"
                    " nodes keep the cores they were made with",
                    hint=f"make the cluster anew, with --node {name}:cpu={changed.cores:g}",
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
        """Become a command on the node: its namespaces, limits and process environment."""
        spec, node = self._find(name)
        pids = self._processes(spec, node)
        if not pids:
            raise ClusterError(f"{name} is down", hint=command_line(spec.name, f"restore {name}"))
        variables = {**self._nodes(spec).variables(), "TERM": os.environ.get("TERM", "dumb")}
        first_process.join(node, spec, self._cgroup(spec, node))
        target = f"--target={first_process.find(pids)}"
        enter = ("nsenter", target, *(f"--{namespace}" for namespace in NAMESPACES))
        # the folder by its name: that of the host would lead out of the node
        here = ("sh", "-c", 'cd "$0" 2>/dev/null || cd; exec "$@"', os.getcwd())
        os.execvpe(enter[0], [*enter, *here, *command], variables)

    def log_in(self, name: str, arguments: Sequence[str]) -> NoReturn:
        """Become an ssh to the node."""
        self._find(name)
        config = str(self.ssh_config)
        os.execvp("ssh", ["ssh", "-F", config, "-o", "BatchMode=no", name, *arguments])

    @property
    def ssh_config(self) -> Path:
        return self.state.folder / "ssh_config"

    # Making

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
        """Power on, under limits that are in force from the beginning."""
        cgroup = self._cgroup(spec, node)
        cgroup.remove()  # what the systemd of an earlier boot has left
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
                    raise ClusterError(f"{node.name} does not come up: {'; '.join(log[-5:])}")
                time.sleep(0.02)

    def _boot_seconds(self, spec: ClusterSpec) -> float:
        is_emulated = spec.kind == "machine" and roots.emulator(spec.arch)
        return EMULATED_BOOT_SECONDS if is_emulated else BOOT_SECONDS[spec.kind]

    # Looking

    def _is_up_as(self, spec: ClusterSpec, facts: dict[str, Any]) -> bool:
        try:
            found = self.state.load()
        except ClusterError:  # there is none, or what is known of it is damaged
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
        if not cgroup.exists():  # half-made, or half taken away
            return NodeStatus(node, "down", 0, 0.0)
        connected = "up" if network.is_connected(node) else "cut"
        state = connected if cgroup.processes() else "down"
        return NodeStatus(node, state, cgroup.memory_bytes(), cgroup.throttled())

    # Taking away

    def _clear(self) -> bool:
        """Everything that bears the cluster's name, whatever the folder says is there."""
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
            network.HYSTERESIS.off()
        way_out.close_way_out(name)
        roots.remove_format(format_name(name))
        found = bool(nodes) or self.state.folder.exists()
        inventory.remove(self._inventory_path(), name)
        self.state.remove()
        return found

    def _inventory_path(self) -> Path:
        try:
            return Path(self.state.load()[1]["inventory"])
        except (ClusterError, KeyError):  # never written, or not to be known any more
            return inventory.default_path(self.state.name)


def answers(node: NodeSpec) -> bool:
    """Whether the node's sshd greets."""
    try:
        with socket.create_connection((node.address, SSH_PORT), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
