"""The way from a cluster to the world: packets are forwarded under the host's address.

Nobody out there can begin a connection to a node. Machines need it to install packages. The host's
ip_forward is put back when the last cluster that needed it has gone.
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
    """Also where it was never opened, or only half."""
    tables = tables_left()
    if table_name(cluster) in tables:
        run("nft", "delete", "table", "ip", table_name(cluster))
    if not tables - {table_name(cluster)}:
        FORWARDING.restore()


def tables_left() -> set[str]:
    """Tables of all emulated clusters."""
    if not succeeds("nft", "--version"):
        return set()
    entries = json.loads(run("nft", "--json", "list", "tables"))["nftables"]
    names = {entry["table"]["name"] for entry in entries if "table" in entry}
    return {name for name in names if name.startswith(PREFIX)}
