"""Scrape targets of Prometheus, as a file that it reloads on changes (file_sd)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from typing import Any

from cluster.inventory_file import Inventory

EXPORTER_PORT = 9835
FIRST_RANK_PORT = 9836
NODE_EXPORTER_PORT = 9100
# as many as a board has cores; a port without a rank only costs a refused connection
RANKS_PER_HOST = 4


def of_cluster(inventory: Inventory) -> list[dict[str, Any]]:
    """Return the targets of all boards of an inventory."""
    return [
        group
        for host in inventory.hosts
        for group in _of_host(host.name, host.address, with_machine=True)
    ]


def of_this_machine() -> list[dict[str, Any]]:
    """Return the targets of ranks and an exporter that listen on loopback."""
    return list(_of_host(socket.gethostname(), "127.0.0.1", with_machine=False))


def render(groups: list[dict[str, Any]]) -> str:
    return json.dumps(groups, indent=1) + "\n"


def _of_host(name: str, address: str, *, with_machine: bool) -> Iterable[dict[str, Any]]:
    where = f"[{address}]" if ":" in address else address
    ranks = range(FIRST_RANK_PORT, FIRST_RANK_PORT + RANKS_PER_HOST)
    ports = {"rank": ranks, "node": [EXPORTER_PORT]}
    if with_machine:
        ports["machine"] = [NODE_EXPORTER_PORT]
    for job, numbers in ports.items():
        yield {
            "targets": [f"{where}:{number}" for number in numbers],
            "labels": {"job": job, "host": name},
        }
