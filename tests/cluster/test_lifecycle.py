"""Clusters are created and removed, even after interruptions, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from cluster.emulate.state import ROOT
from tests.cluster.emulator import ENVIRONMENT, Emulator
from tests.support import REPOSITORY

pytestmark = pytest.mark.cluster


def start(emulator: Emulator, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        emulator.command(*words), env=ENVIRONMENT, cwd=REPOSITORY, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.005)


def test_up_and_down_twice_leave_nothing(emulator: Emulator) -> None:
    for _ in range(2):
        emulator.succeed("up", "--nodes", "2")
        assert emulator.states() == ["up", "up"]
        assert len(emulator.leftovers()) > 5  # leftovers() does find them
        assert "is down" in emulator.succeed("down")
        assert emulator.leftovers() == []
    assert "was not up" in emulator.succeed("down")


def test_a_running_cluster_with_the_same_settings_is_kept(emulator: Emulator) -> None:
    emulator.succeed("up", "--nodes", "1")
    emulator.on(1, "touch", "/run/kept")
    assert "is already up" in emulator.succeed("up", "--nodes", "1")
    emulator.on(1, "ls", "/run/kept")


def test_other_settings_recreate_the_cluster(emulator: Emulator) -> None:
    emulator.succeed("up", "--nodes", "2")
    sleeper = start(emulator, "exec", emulator.node(2), "--", "sleep", "1000")
    wait_for_command(emulator, 2, "sleep")
    emulator.succeed("up", "--nodes", "1", "--rate", "50")
    assert emulator.states() == ["up"]
    assert sleeper.wait(timeout=20) == -9


def wait_for_command(emulator: Emulator, number: int, name: str) -> None:
    deadline = time.monotonic() + 30
    while name not in emulator.on(number, "ps", "-e", "-o", "comm="):
        assert time.monotonic() < deadline, f"{name} does not start"


def test_down_ends_an_mpi_job(emulator: Emulator) -> None:
    emulator.succeed("up", "--nodes", "2")
    job = start(emulator, "exec", emulator.node(1), "--", "mpirun", "-np", "2", "sleep", "1000")
    wait_for_command(emulator, 2, "sleep")
    emulator.succeed("down")
    assert job.wait(timeout=20) != 0
    assert emulator.leftovers() == []


@pytest.mark.parametrize("moment", ["folder", "bridge", "first node"])
def test_down_after_a_killed_up(emulator: Emulator, moment: str) -> None:
    half_made(emulator, moment)
    assert "is down" in emulator.succeed("down")
    assert emulator.leftovers() == []


def test_up_after_a_killed_up(emulator: Emulator) -> None:
    half_made(emulator, "first node")
    emulator.succeed("status")
    emulator.succeed("up", "--nodes", "2")
    assert emulator.states() == ["up", "up"]


def half_made(emulator: Emulator, moment: str) -> None:
    """Start `up` and kill it before it is complete."""
    sign = {
        "folder": ROOT / emulator.name,
        "bridge": Path(f"/sys/class/net/br-{emulator.name}"),
        "first node": Path(f"/run/netns/{emulator.node(1)}"),
    }
    process = start(emulator, "up", "--nodes", "8")
    wait_for(sign[moment])
    process.kill()
    process.communicate()


def test_two_commands_run_one_after_the_other(emulator: Emulator) -> None:
    first, second = (start(emulator, "up", "--nodes", "2") for _ in range(2))
    said = [first.communicate(timeout=60)[0], second.communicate(timeout=60)[0]]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert sum("is already up" in words for words in said) == 1
    assert emulator.states() == ["up", "up"]


def test_a_node_without_sshd_is_down_until_restored(emulator: Emulator) -> None:
    emulator.succeed("up", "--nodes", "1")
    pid = subprocess.check_output(["ip", "netns", "pids", emulator.node(1)], text=True).split()[0]
    os.kill(int(pid), 9)
    deadline = time.monotonic() + 10
    while emulator.states() != ["down"]:
        assert time.monotonic() < deadline
    failed = emulator("exec", emulator.node(1), "--", "true")
    assert failed.returncode == 2 and f"restore {emulator.node(1)}" in failed.stderr
    emulator.succeed("restore", emulator.node(1))
    emulator.on(1, "true")


def test_a_damaged_state_file_is_reported_and_removed(emulator: Emulator) -> None:
    emulator.succeed("up", "--nodes", "1")
    (ROOT / emulator.name / "cluster.json").write_text("{")
    damaged = emulator("status")
    assert damaged.returncode == 2 and "is damaged" in damaged.stderr and "down" in damaged.stderr
    emulator.succeed("down")
    assert emulator.leftovers() == []


def test_addresses_in_use_are_rejected(emulator: Emulator) -> None:
    emulator.succeed("up", "--nodes", "1")
    other = Emulator(f"v{emulator.name[1:]}", emulator.network)
    refused = other("up", "--nodes", "1")
    assert refused.returncode == 2 and "already uses" in refused.stderr
    assert other.leftovers() == [] and emulator.states() == ["up"]


def test_a_users_own_file_is_not_overwritten(emulator: Emulator, tmp_path: Path) -> None:
    precious = tmp_path / "boards.yml"
    precious.write_text("cluster: {}\n")
    refused = emulator("up", "--nodes", "1", "--inventory", str(precious))
    assert refused.returncode == 2 and str(precious) in refused.stderr
    assert precious.read_text() == "cluster: {}\n"


@pytest.mark.parametrize("command", [("kill",), ("cut",), ("restore",), ("exec", "--", "true")])
def test_an_unknown_node_is_rejected(three_nodes: Emulator, command: tuple[str, ...]) -> None:
    refused = three_nodes(command[0], "nobody", *command[1:])
    assert refused.returncode == 2
    assert "unknown node 'nobody'" in refused.stderr and three_nodes.node(1) in refused.stderr
