"""The inventory of boards: check it, and print it as a table and as JSON."""

from __future__ import annotations

from pathlib import Path
from random import Random

from cluster.inventory_file import read_inventory, render_hosts, render_json
from fuzzing.mutation import mutate

SAMPLE = b"""\
cluster:
  hosts:
    pi-01:
      ansible_host: 10.0.0.1
    pi-02: {ansible_host: 10.0.0.2, cluster_cores: 2, base_x: &a [1, 2]}
  vars:
    cluster_network: 10.0.0.0/24
    cluster_head: pi-01
    ansible_user: pi
    base_y: *a
"""
TOKENS = (
    *(b"[", b"{", b"- ", b"? ", b"&a ", b"*a", b"&a [*a]", b"<<: *a\n", b"!!int ", b"!!bool "),
    *(
        b"!!float ",
        b"!!timestamp ",
        b"!!binary ",
        b"!!set ",
        b"!!omap ",
        b"!vault ",
        b"!!python/x ",
    ),
    *(
        b"2001-01-01",
        b"2001-99-99T1:2:3",
        b"1:60:60",
        b".nan",
        b"~",
        b"\t",
        b"---\n",
        b"|\n",
        b"%Y",
    ),
)


class _Inventory:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "boards.yml"

    def make(self, random: Random) -> bytes:
        return mutate(random, SAMPLE, TOKENS)

    def check(self, data: bytes) -> None:
        self._path.write_bytes(data)
        inventory = read_inventory(self._path)
        render_hosts(inventory)
        render_json(inventory)


make_target = _Inventory
