"""The specification of an emulated cluster, checked before anything is created. Pure."""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.errors import ClusterError

# A Raspberry Pi 4 has a peak of 48 GFLOPS in float32 and reaches about half of it in convolutions.
# A Zen 3 core has a peak of 101 and reaches about 60. So a board is about 0.35 of such a core.
PI_4_CORES = 0.35
PI_4_RATE_MBIT = 940.0  # TCP throughput of gigabit Ethernet
PI_4_MEMORY_BYTES = 4 * 2**30
# The host's kernel forwards the nodes' packets, which on boards each board does itself. If the
# nodes leave it less than this fraction of the machine, results measure the emulator.
KERNEL_SHARE = 0.25

# private networks of RFC 1918, and the shared one of RFC 6598
PRIVATE_NETWORKS = [
    ipaddress.IPv4Network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
]

DEFAULT_NAME = "pi"
DEFAULT_NETWORK = "10.77.0.0/24"
KINDS = ("light", "machine")


def command_line(cluster: str, words: str) -> str:
    """Return the command line that runs an emulator command on this cluster."""
    flag = "" if cluster == DEFAULT_NAME else f" --name {cluster}"
    return f"python -m cluster.emulate{flag} {words}"


def check_name(name: str) -> None:
    """Check the name: links, folders and cgroups contain it, and link names have 15 characters."""
    if not re.fullmatch(r"[a-z][a-z0-9]{0,8}", name):
        raise ClusterError(f"--name {name!r}: expected a letter, then up to 8 letters and digits")


@dataclass(frozen=True)
class NodeSpec:
    """One node and its limits."""

    name: str
    address: str
    cores: float = PI_4_CORES
    rate_mbit: float = PI_4_RATE_MBIT
    memory_bytes: int = PI_4_MEMORY_BYTES

    def __post_init__(self) -> None:
        _check_within(f"{self.name}: cpu", self.cores, 0.01, 1024)
        _check_within(f"{self.name}: rate in Mbit/s", self.rate_mbit, 0.1, 100_000)
        _check_within(f"{self.name}: memory in MiB", self.memory_bytes / 2**20, 64, 2**20)

    @property
    def whole_cores(self) -> int:
        """Number of cores the node sees; a quota of one core or less is pinned to one core."""
        return math.ceil(self.cores)


@dataclass(frozen=True)
class ClusterSpec:
    """The whole cluster. `suite` and `arch` apply to nodes of kind machine."""

    name: str
    network: str
    kind: str
    nodes: tuple[NodeSpec, ...]
    suite: str = "bookworm"
    arch: str = "amd64"

    @property
    def head(self) -> NodeSpec:
        return self.nodes[0]

    @property
    def prefix_length(self) -> int:
        return ipaddress.ip_network(self.network).prefixlen

    @property
    def host_address(self) -> str:
        """The host's address on the bridge: the last one of the network."""
        return str(ipaddress.ip_network(self.network)[-2])

    def node(self, name: str) -> NodeSpec:
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise ClusterError(f"unknown node {name!r}", hint=f"nodes: {known}")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ClusterSpec:
        nodes = tuple(NodeSpec(**node) for node in value["nodes"])
        return cls(**{**value, "nodes": nodes})


def plan_cluster(
    *,
    name: str = DEFAULT_NAME,
    network: str = DEFAULT_NETWORK,
    kind: str = "light",
    count: int,
    defaults: Mapping[str, float],
    overrides: Sequence[str] = (),
    suite: str = "bookworm",
    arch: str = "amd64",
) -> ClusterSpec:
    """Plan the nodes.

    defaults: cores, rate_mbit and memory_bytes of every node
    overrides: settings of single nodes, such as "pi-03:cpu=0.1"
    """
    check_name(name)
    addresses = _addresses(network, count)
    width = max(len(str(count)), 2)
    nodes = {
        (node := f"{name}-{number:0{width}}"): NodeSpec(node, address, **defaults)  # type: ignore[arg-type]
        for number, address in enumerate(addresses, 1)
    }
    for override in overrides:
        node, changes = parse_override(override)
        if node not in nodes:
            raise ClusterError(f"--node {override}: nodes are {', '.join(nodes)}")
        nodes[node] = dataclasses.replace(nodes[node], **changes)
    return ClusterSpec(name, network, kind, tuple(nodes.values()), suite, arch)


def parse_override(text: str) -> tuple[str, dict[str, Any]]:
    """Parse settings of a single node, such as "pi-03:cpu=0.1,rate=100"."""
    node, _, settings = text.partition(":")
    parsers = {
        "cpu": ("cores", parse_number),
        "rate": ("rate_mbit", parse_rate),
        "memory": ("memory_bytes", parse_memory),
    }
    changes = {}
    for setting in settings.split(","):
        key, _, value = setting.partition("=")
        if key not in parsers:
            raise ClusterError(
                f"--node {text}: unknown setting {key!r}", hint="NODE:cpu=X,rate=MBIT,memory=SIZE"
            )
        field, parse = parsers[key]
        changes[field] = parse(value, f"--node {text}")
    return node, changes


def parse_number(text: str, where: str) -> float:
    """Parse a number; `where` names the option in the error message."""
    try:
        return float(text)
    except ValueError:
        raise ClusterError(f"{where}: expected a number, not {text!r}") from None


def parse_rate(text: str, where: str) -> float:
    """Parse a rate such as "940", "940mbit" or "1gbit"; return Mbit/s."""
    units = {"gbit": 1000.0, "mbit": 1.0, "kbit": 0.001}
    for unit, factor in units.items():
        if text.lower().endswith(unit):
            return parse_number(text[: -len(unit)], where) * factor
    return parse_number(text, where)


def parse_memory(text: str, where: str) -> int:
    """Parse a size such as "4G" or "512M"; return bytes."""
    factor = {"G": 2**30, "M": 2**20}.get(text[-1:].upper())
    if factor is None:
        raise ClusterError(f"{where}: expected a size such as 4G or 512M, not {text!r}")
    size = parse_number(text[:-1], where) * factor
    if not math.isfinite(size):
        raise ClusterError(f"{where}: expected a size such as 4G or 512M, not {text!r}")
    return int(size)


def check_cores(nodes: Iterable[NodeSpec], host_cores: int) -> None:
    """Raise if a node's quota is larger than the host."""
    for node in nodes:
        if node.cores > host_cores:
            raise ClusterError(
                f"{node.name}: cpu: expected at most this machine's {host_cores} cores,"
                f" not {node.cores:g}"
            )


def room_warning(spec: ClusterSpec, host_cores: int) -> str | None:
    """Return a warning if the quotas leave too little CPU time for the host's kernel."""
    asked = sum(node.cores for node in spec.nodes)
    room = host_cores * (1 - KERNEL_SHARE)
    if asked <= room:
        return None
    return (
        f"the nodes' CPU quotas add up to {asked:g} of this machine's {host_cores} cores. More than"
        f" {room:g} leaves too little for the kernel's network code: results measure the emulator"
    )


def _addresses(network: str, count: int) -> list[str]:
    try:
        parsed = ipaddress.IPv4Network(network)
    except ValueError as error:
        raise ClusterError(f"--network {network}: {error}", hint="such as 10.77.0.0/24") from None
    if not any(parsed.subnet_of(private) for private in PRIVATE_NETWORKS):
        raise ClusterError(f"--network {network} is not private", hint="such as 10.77.0.0/24")
    if count < 1:
        raise ClusterError(f"--nodes {count}: expected at least one")
    room = max(parsed.num_addresses - 3, 0)  # network, broadcast and the host itself
    if count > room:
        raise ClusterError(f"--nodes {count}: --network {network} has addresses for {room} nodes")
    return [str(parsed[number]) for number in range(1, count + 1)]


def _check_within(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ClusterError(f"{what}: expected {least:g} to {most:,}, not {value:g}")
