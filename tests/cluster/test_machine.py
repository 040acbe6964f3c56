"""Machines: nodes with their own Debian and systemd, like freshly flashed boards."""

from __future__ import annotations

import os
import time

import pytest

from cluster.emulate.rootfs import host_arch, root_path
from tests.cluster.emulator import Emulator

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not root_path("bookworm", host_arch()).exists()
        and os.environ.get("EDGEDDL_TEST_MACHINES") != "1",
        reason="no Debian is cached; EDGEDDL_TEST_MACHINES=1 creates one (minutes, needs a mirror)",
    ),
]


def test_a_machine_boots_accepts_ssh_and_keeps_its_files(emulator: Emulator) -> None:
    emulator.succeed("up", "--nodes", "1", "--kind", "machine", "--cpu", "1", timeout=600)
    node = emulator.node(1)
    assert emulator.on(1, "systemctl", "is-system-running", "--wait") == "running\n"
    assert emulator.succeed("ssh", node, "hostname") == f"{node}\n"
    assert emulator.on(1, "sudo", "-u", "pi", "sudo", "id", "-un") == "root\n"
    assert emulator("exec", node, "--", "python3", "-c", "import edgeddl").returncode == 1
    emulator.on(1, "touch", "/root/kept")
    reboot(emulator)
    emulator.succeed("kill", node)
    assert emulator.states() == ["down"]
    emulator.succeed("restore", node, timeout=180)
    assert emulator.succeed("ssh", node, "ls", "kept") == "kept\n"
    in_use = emulator("clean")
    assert in_use.returncode == 2 and emulator.name in in_use.stderr
    emulator.succeed("down")
    assert emulator.leftovers() == []


def reboot(emulator: Emulator) -> None:
    """Reboot from inside and wait until ssh works; /run is empty afterwards."""
    emulator.on(1, "touch", "/run/before")
    emulator("exec", emulator.node(1), "--", "systemctl", "reboot")
    deadline = time.monotonic() + 120
    while "before" in emulator("ssh", emulator.node(1), "ls /run || echo before").stdout:
        assert time.monotonic() < deadline, "does not reboot"
    while emulator("ssh", emulator.node(1), "true").returncode:
        assert time.monotonic() < deadline, "does not come up again"
