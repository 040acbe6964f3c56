"""Creates the bridge and, for each node, a network namespace with a rate-limited link.

    host                        node (network namespace)
    br-pi ── pi-01 ═══ eth0     10.77.0.1
          ── pi-02 ═══ eth0     10.77.0.2

A token bucket at each end limits the link: the one at the node's eth0 limits what it sends, the one
at the host's end limits what it receives, as a switch would. A real switch has its own processor.
The timers of these buckets interrupt the nodes, and the time counts against a node's quota. So
packets leave in bursts, with one timer per burst instead of one per packet (htb with hysteresis).
While four nodes train, this makes 1,750 interrupts a second instead of 3,900, and a step takes 4 %
less time.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
from pathlib import Path

from cluster.emulate.host_command import run, succeeds
from cluster.emulate.spec import ClusterSpec, NodeSpec
from cluster.emulate.sysctl import Sysctl
from cluster.errors import ClusterError

# time between two bursts
BURST_SECONDS = 0.0022
# The largest packet that offloading makes. A burst holds at least two: with one, at 100 Mbit/s,
# queues are so short that packets are lost.
LARGEST_PACKET_BYTES = 64 * 2**10
# The queue holds a sender's data in flight while the receiver is throttled.
QUEUE_SECONDS = 0.020
# applies to all htb classes of this host
HYSTERESIS = Sysctl(
    Path("/sys/module/sch_htb/parameters/htb_hysteresis"), Path("/run/edgeddl-htb_hysteresis")
)

NAMESPACES = Path("/run/netns")
AVAILABLE_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def bridge_name(cluster: str) -> str:
    return f"br-{cluster}"


def check_free(spec: ClusterSpec) -> None:
    """Raise if the host already has a route to these addresses."""
    ours = ipaddress.ip_network(spec.network)
    for route in json.loads(run("ip", "-json", "-4", "route", "show", "table", "main") or "[]"):
        if route["dst"] == "default" or route.get("dev") == bridge_name(spec.name):
            continue
        if ours.overlaps(ipaddress.ip_network(route["dst"])):
            raise ClusterError(
                f"this machine already uses {route['dst']} (on {route.get('dev', '?')})",
                hint="use another network, such as --network 10.78.0.0/24",
            )


def make_bridge(spec: ClusterSpec) -> None:
    bridge = bridge_name(spec.name)
    run("ip", "link", "add", bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0")
    run("ip", "address", "add", f"{spec.host_address}/{spec.prefix_length}", "dev", bridge)
    run("ip", "link", "set", bridge, "up")


def make_link(spec: ClusterSpec, node: NodeSpec) -> None:
    """Create the node's network namespace and its link to the bridge."""
    name = node.name
    run("ip", "netns", "add", name)
    run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "link", "set", name, "master", bridge_name(spec.name), "up")
    inside = ("ip", "-netns", name)
    address = f"{node.address}/{spec.prefix_length}"
    run(*inside, "address", "add", address, "dev", "eth0", "noprefixroute")
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "link", "set", "eth0", "up")
    ours = ("route", "add", spec.network, "dev", "eth0", "src", node.address)
    run(*inside, *ours, *_boards_congestion_control())
    run(*inside, "route", "add", "default", "via", spec.host_address)
    for traffic_control, end in _ends(node):
        run(*traffic_control, "qdisc", "add", *end, "root", "handle", "1:", "htb", "default", "1")
    set_rate(node)
    with contextlib.suppress(OSError):  # not permitted in some containers: more timers then
        HYSTERESIS.enable()


def _boards_congestion_control() -> tuple[str, ...]:
    """Return the route option for the congestion control of Debian's kernels.

    This host may use another one. BBR, for example, delays packets by timers, which cost a node
    some of its CPU quota.
    """
    there = AVAILABLE_CONGESTION_CONTROL
    known = there.read_text().split() if there.is_file() else []
    return ("congctl", "cubic") if "cubic" in known else ()


def set_rate(node: NodeSpec) -> None:
    bytes_per_second = node.rate_mbit * 1e6 / 8
    burst = max(round(bytes_per_second * BURST_SECONDS), 2 * LARGEST_PACKET_BYTES)
    queue = burst + round(bytes_per_second * QUEUE_SECONDS)
    bucket = ("rate", f"{node.rate_mbit:g}mbit", "burst", f"{burst}", "cburst", f"{burst}")
    turn = ("quantum", f"{LARGEST_PACKET_BYTES}")  # no effect with one class; avoids a warning
    limit = ("bfifo", "limit", f"{queue}")
    for traffic_control, end in _ends(node):
        this = (*traffic_control, "class", "replace", *end, "parent", "1:", "classid", "1:1")
        run(*this, "htb", *bucket, *turn)
        run(*traffic_control, "qdisc", "replace", *end, "parent", "1:1", "handle", "2:", *limit)


def _ends(node: NodeSpec) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return tc's arguments for both ends of the node's link: the host's and the node's."""
    return [(("tc",), ("dev", node.name)), (("tc", "-netns", node.name), ("dev", "eth0"))]


def connect(node: NodeSpec) -> None:
    run("ip", "link", "set", node.name, "up")


def disconnect(node: NodeSpec) -> None:
    run("ip", "link", "set", node.name, "down")


def is_connected(node: NodeSpec) -> bool:
    return "UP" in _links().get(node.name, ())


def namespace_path(node: str) -> Path:
    return NAMESPACES / node


def processes_in(node: str) -> list[int]:
    """Return the processes in the node's network namespace, in any cgroup."""
    if not namespace_path(node).exists():
        return []
    return [int(pid) for pid in run("ip", "netns", "pids", node).split()]


def nodes_left(cluster: str) -> list[str]:
    """Return the names of this cluster's nodes that have a namespace or a link."""
    names = set(_links())
    if NAMESPACES.is_dir():
        names |= {path.name for path in NAMESPACES.iterdir()}
    prefix = f"{cluster}-"
    return sorted(n for n in names if n.startswith(prefix) and n.removeprefix(prefix).isdigit())


def _links() -> dict[str, list[str]]:
    """Return the flags of each link of the host."""
    links = json.loads(run("ip", "-json", "link", "show") or "[]")
    return {link["ifname"]: link["flags"] for link in links}


def remove_node(node: str) -> None:
    succeeds("ip", "link", "delete", node)
    if namespace_path(node).exists():
        run("ip", "netns", "delete", node)


def remove_bridge(cluster: str) -> None:
    succeeds("ip", "link", "delete", bridge_name(cluster))
