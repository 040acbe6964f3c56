"""Reads and checks the inventory of boards: hosts, addresses, network, head.

    python -m cluster.inventory_file FILE [--json]

It is a plain Ansible inventory with one group, `cluster` (see inventory/boards.example.yml), which
Ansible, Fabric and the monitoring tools share. Ansible ignores a misspelt variable, and the first
of two hosts with the same name. Here both are errors.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError, exit_code_of
from cluster.inventory_values import (
    Network,
    parse_address,
    parse_network,
    parse_number,
    parse_text,
)
from cluster.yaml_lines import Part, read_yaml
from edgeddl.table import render_table

FOLDER = Path(__file__).with_name("inventory")
SAMPLE = "cluster/inventory/boards.example.yml"

ROLES = (
    "base", "raspberrypi", "ssh_mesh", "python_env", "mpi", "edgeddl", "data", "linpack",
    "node_exporter", "prometheus", "grafana",
)  # fmt: skip
FREE_PREFIXES = tuple(f"{prefix}_" for prefix in ("ansible", *ROLES))
OF_A_HOST = ("cluster_cores", "cluster_memory_mib")
OF_THE_CLUSTER = ("cluster_network", "cluster_head", "ansible_user")
HOST_NAME = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"


@dataclass(frozen=True)
class Host:
    """A board. Cores and memory are None if the inventory does not set them."""

    name: str
    address: str
    cores: int | None
    memory_mib: int | None
    # variables of the cluster, overridden by those of the host
    variables: Mapping[str, Any]


@dataclass(frozen=True)
class Inventory:
    """A cluster as described by its inventory."""

    path: Path
    network: str
    head: Host
    user: str
    hosts: tuple[Host, ...]
    variables: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path), "head": self.head.name}


def read_inventory(path: Path) -> Inventory:
    """Read and check an inventory; a ClusterError names the wrong line."""
    if not path.exists():
        sample = FOLDER / "boards.example.yml"
        raise ClusterError(
            f"inventory {path} does not exist",
            hint=f"copy the example and enter your boards: cp {sample} {path}",
        )
    top = read_yaml(path)
    groups = _entries(top, "the file", known=("cluster",), required=("cluster",))
    needed = ("hosts", "vars")
    group = _entries(groups["cluster"], "cluster", known=needed, required=needed)
    shared = _variables(group["vars"], "vars", (*OF_THE_CLUSTER, *OF_A_HOST), OF_THE_CLUSTER)
    network = parse_network(shared["cluster_network"])
    hosts = _hosts(group["hosts"], shared, network)
    return Inventory(
        path,
        str(network),
        head=_head(shared["cluster_head"], hosts),
        user=parse_text(shared["ansible_user"], "ansible_user"),
        hosts=tuple(hosts.values()),
        variables=_values(shared),
    )


def _entries(
    part: Part, what: str, known: Sequence[str], required: Sequence[str]
) -> dict[str, Part]:
    entries = part.entries(what)
    for name, entry in entries.items():
        if name not in known:
            raise _unknown(entry, name, what, known)
    return _complete(part, what, entries, required)


def _variables(
    part: Part, what: str, known: Sequence[str], required: Sequence[str]
) -> dict[str, Part]:
    """Return the entries of a mapping; Ansible's and the roles' variables are allowed too."""
    entries = part.entries(what)
    for name, entry in entries.items():
        if name in OF_THE_CLUSTER and name not in known and name != "ansible_user":
            raise entry.error(f"{name} applies to the whole cluster", hint="move it to vars")
        if name not in known and not name.startswith(FREE_PREFIXES):
            raise _unknown(entry, name, what, (*known, *required))
    return _complete(part, what, entries, required)


def _complete(
    part: Part, what: str, entries: dict[str, Part], required: Sequence[str]
) -> dict[str, Part]:
    for name in required:
        if name not in entries:
            raise part.error(f"{what} has no {name}", hint=f"see the example in {SAMPLE}")
    return entries


def _unknown(entry: Part, name: str, what: str, known: Sequence[str]) -> ClusterError:
    close = difflib.get_close_matches(name, known, n=1)
    roles = "" if "hosts" in known or "cluster" in known else ", or a name with a role's prefix"
    hint = f"did you mean {close[0]}?" if close else f"expected {', '.join(known)}{roles}"
    return entry.error(f"unknown key {name!r} in {what}", hint=hint)


def _hosts(part: Part, shared: Mapping[str, Part], network: Network) -> dict[str, Host]:
    found: dict[str, Host] = {}
    places: dict[str, Part] = {}
    for name, entry in part.entries("hosts").items():
        if not re.fullmatch(HOST_NAME, name):
            raise entry.error(
                f"{name!r} is not a host name: use letters, digits and hyphens",
                hint="list each board separately, with its own address",
            )
        own = _variables(entry, name, OF_A_HOST, ("ansible_host",))
        place = own["ansible_host"]
        address = parse_address(place, network)
        if address in places:
            other = places[address]
            raise place.error(
                f"{name} has address {address}, which is already used in line {other.line}",
                hint="give each board its own address",
            )
        places[address] = place
        found[name] = _host(name, address, {**shared, **own})
    if not found:
        raise part.error("hosts is empty", hint=f"see the example in {SAMPLE}")
    return found


def _host(name: str, address: str, parts: Mapping[str, Part]) -> Host:
    numbers = {key: parse_number(parts[key], key) for key in OF_A_HOST if key in parts}
    cores, memory = (numbers.get(key) for key in OF_A_HOST)
    return Host(name, address, cores, memory, _values(parts))


def _values(parts: Mapping[str, Part]) -> dict[str, Any]:
    return {name: part.value() for name, part in parts.items()}


def _head(part: Part, hosts: Mapping[str, Host]) -> Host:
    name = parse_text(part, "cluster_head")
    if name not in hosts:
        close = difflib.get_close_matches(name, hosts, n=1) or list(hosts)
        raise part.error(
            f"cluster_head is {name!r}, which is not a host of this inventory",
            hint=f"use one of its hosts, such as {close[0]}",
        )
    return hosts[name]


def render_hosts(inventory: Inventory) -> str:
    rows = [
        (
            host.name,
            host.address,
            str(host.cores or "detected"),
            f"{host.memory_mib} MiB" if host.memory_mib else "detected",
            "head" if host is inventory.head else "",
        )
        for host in inventory.hosts
    ]
    table = render_table(("host", "address", "cores", "memory", "role"), rows)
    return f"{table}\n\nnetwork {inventory.network}, user {inventory.user}"


def render_json(inventory: Inventory) -> str:
    try:
        return json.dumps(inventory.to_json(), indent=1, default=str)  # YAML also has dates
    except (TypeError, ValueError) as error:  # a date as a key, or an integer of 5,000 digits
        raise ClusterError(
            f"{inventory.path}: a variable cannot be written as JSON: {error}"
        ) from None


def render_inventory(
    hosts: Mapping[str, Mapping[str, Any]], variables: Mapping[str, Any], comment: str
) -> str:
    """Render an Ansible inventory in YAML. Values are written as JSON, a subset of YAML."""
    lines = [f"# {comment}", "cluster:", "  hosts:"]
    for host, settings in hosts.items():
        lines.append(f"    {host}:")
        lines += [f"      {key}: {json.dumps(value)}" for key, value in settings.items()]
    lines.append("  vars:")
    lines += [f"    {key}: {json.dumps(value)}" for key, value in variables.items()]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cluster.inventory_file",
        description="Checks an inventory of boards and prints its contents.",
    )
    parser.add_argument("file", type=Path, help=f"inventory, such as {SAMPLE}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)

    def run() -> None:
        inventory = read_inventory(options.file)
        print(render_json(inventory) if options.json else render_hosts(inventory))

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
