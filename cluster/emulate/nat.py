"""Network address translation, with which machines reach the internet to install packages.

Connections from outside to a node are dropped. The host's ip_forward is restored when the last
cluster of machines is removed.
"""

from __future__ import annotations

import json
from pathlib import Path

from cluster.emulate.host_command import run, succeeds
from cluster.emulate.network import bridge_name
from cluster.emulate.spec import ClusterSpec
from cluster.emulate.sysctl import Sysctl

FORWARDING = Sysctl(Path("/proc/sys/net/ipv4/ip_forward"), Path("/run/edgeddl-ip_forward"))
PREFIX = "edgeddl_"


def table_name(cluster: str) -> str:
    return PREFIX + cluster


def render_table(spec: ClusterSpec) -> str:
    return f"""table ip {table_name(spec.name)} {{
    chain postrouting {{
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr {spec.network} ip daddr != {spec.network} masquerade
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        iifname != "{bridge_name(spec.name)}" ip daddr {spec.network} ct state new drop
    }}
}}
"""


def enable(spec: ClusterSpec) -> None:
    FORWARDING.enable()
    run("nft", "--file", "-", stdin=render_table(spec))


def disable(cluster: str) -> None:
    """Remove the cluster's rules, even if they were only partly created."""
    tables = tables_left()
    if table_name(cluster) in tables:
        run("nft", "delete", "table", "ip", table_name(cluster))
    if not tables - {table_name(cluster)}:
        FORWARDING.restore()


def tables_left() -> set[str]:
    """Return the nftables tables of all emulated clusters."""
    if not succeeds("nft", "--version"):
        return set()
    entries = json.loads(run("nft", "--json", "list", "tables"))["nftables"]
    names = {entry["table"]["name"] for entry in entries if "table" in entry}
    return {name for name in names if name.startswith(PREFIX)}
