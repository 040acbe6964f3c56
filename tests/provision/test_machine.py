"""The first roles of site.yml on one emulated machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.emulate.inventory import default_path
from cluster.emulate.rootfs import host_arch, root_path
from tests.cluster.conftest import NUMBER, reason_to_skip
from tests.cluster.emulator import Emulator
from tests.provision.playbook import PROGRAM, Outcome, play, site

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not PROGRAM.exists(), reason="ansible-core is not installed"),
    pytest.mark.skipif(
        not root_path("bookworm", host_arch()).exists(),
        reason="no Debian is cached; create one: python -m cluster.emulate up --kind machine",
    ),
]


@pytest.fixture
def machine() -> Iterator[Emulator]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    emulator = Emulator(f"w{NUMBER}", f"10.213.{NUMBER % 250}.128/26")
    try:
        emulator.succeed("up", "--nodes", "1", "--kind", "machine", "--cpu", "1", timeout=240)
        yield emulator
    finally:
        emulator("down", timeout=120)
    assert emulator.leftovers() == []


def set_up(machine: Emulator) -> Outcome:
    return play(
        site("site"),
        inventory=default_path(machine.name),
        words=["--tags", "base,ssh_mesh"],
    )


def test_names_and_keys_of_a_machine(machine: Emulator) -> None:
    first, node = set_up(machine), machine.node(1)
    assert first.code == 0, first.output
    assert "127.0.1.1" not in machine.on(1, "cat", "/etc/hosts")
    # with its own key and known hosts: otherwise ssh would prompt and fail
    command = ("sudo", "-u", "pi", "ssh", "-o", "BatchMode=yes", node, "hostname")
    assert machine.on(1, *command) == f"{node}\n"
    second = set_up(machine)
    assert second.counts()[node]["changed"] == 0, second.output
