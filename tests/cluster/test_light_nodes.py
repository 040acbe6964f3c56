"""Three light nodes: names, limits, ssh, MPI and training."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from cluster.emulate.cgroups import NodeCgroup, find_hierarchy
from cluster.emulate.network import AVAILABLE_CONGESTION_CONTROL, HYSTERESIS
from tests.cluster.emulator import Emulator

pytestmark = pytest.mark.cluster

HOG = "x = b'x' * (700 * 2**20)"
SEND = """
import subprocess, sys, time
data, started = bytes(10_000_000), time.perf_counter()
subprocess.run(["ssh", sys.argv[1], "cat > /dev/null"], input=data, check=True)
print(len(data), time.perf_counter() - started)
"""


def test_nodes_have_their_own_names_and_addresses(three_nodes: Emulator) -> None:
    for number in (1, 2, 3):
        assert three_nodes.on(number, "hostname") == f"{three_nodes.node(number)}\n"
        address = f"{three_nodes.network.rpartition('.')[0]}.{number}/26"
        assert address in three_nodes.on(number, "ip", "-brief", "address", "show", "eth0")


def test_nodes_see_only_their_own_processes_and_shared_memory(three_nodes: Emulator) -> None:
    three_nodes.on(1, "touch", "/dev/shm/mine", "/run/mine")
    assert three_nodes.on(2, "sh", "-c", "ls /dev/shm /run").split() != []
    assert "mine" not in three_nodes.on(2, "sh", "-c", "ls /dev/shm /run")
    assert "mine" not in "".join(path.name for path in Path("/dev/shm").iterdir())
    assert three_nodes.on(2, "ps", "-p", "1", "-o", "comm=").strip() == "sshd"


def shares(node: str, cluster: str) -> tuple[float, int]:
    """Return the kernel's limits: cores and bytes of memory."""
    hierarchy = find_hierarchy()
    folders = [root / f"edgeddl-{cluster}" / node for root in hierarchy.roots]
    if hierarchy.version == 2:
        quota, period = (folders[0] / "cpu.max").read_text().split()
        memory = (folders[0] / "memory.max").read_text()
    else:
        quota, period = ((folders[0] / f"cpu.cfs_{n}_us").read_text() for n in ("quota", "period"))
        memory = (folders[1] / "memory.limit_in_bytes").read_text()
    return int(quota) / int(period), int(memory)


def test_limits_are_applied(three_nodes: Emulator) -> None:
    assert shares(three_nodes.node(3), three_nodes.name) == (pytest.approx(0.5), 512 * 2**20)
    assert three_nodes.on(3, "nproc") == "1\n"


def test_both_ends_of_a_link_have_its_rate(three_nodes: Emulator) -> None:
    node = three_nodes.node(3)
    outside = ["tc", "class", "show", "dev", node]
    inside = ["tc", "-netns", node, "class", "show", "dev", "eth0"]
    for command in (outside, inside):
        rule = subprocess.check_output(command, text=True)
        assert rule.startswith("class htb ") and " rate 100Mbit ceil 100Mbit " in rule


@pytest.mark.parametrize(("sender", "receiver"), [(3, 1), (1, 3)])
def test_a_link_carries_no_more_than_its_rate(
    three_nodes: Emulator, sender: int, receiver: int
) -> None:
    """The third node has 100 Mbit/s. A lower rate is no failure: the machine may be busy."""
    said = three_nodes.on(sender, "python", "-c", SEND, three_nodes.node(receiver))
    sent_bytes, seconds = map(float, said.split())
    assert sent_bytes / seconds < 1.05 * 100e6 / 8


def test_hysteresis_is_enabled_while_clusters_are_up(three_nodes: Emulator) -> None:
    if not HYSTERESIS.setting.exists() or not os.access(HYSTERESIS.setting, os.W_OK):
        pytest.skip("this kernel, or the container around, has no hysteresis to switch on")
    assert HYSTERESIS.setting.read_text() == "1\n"


def test_nodes_use_debians_congestion_control(three_nodes: Emulator) -> None:
    if "cubic" not in AVAILABLE_CONGESTION_CONTROL.read_text().split():
        pytest.skip("this kernel has no CUBIC")
    other = f"{three_nodes.network.rpartition('.')[0]}.2"
    assert "congctl cubic" in three_nodes.on(1, "ip", "route", "get", other)


def test_slow_changes_limits_until_restore(three_nodes: Emulator) -> None:
    node = three_nodes.node(2)
    command = ["tc", "class", "show", "dev", node]
    made_with = shares(node, three_nodes.name)
    three_nodes.succeed("slow", node, "--rate", "10", "--cpu", "0.1")
    assert " rate 10Mbit " in subprocess.check_output(command, text=True)
    assert shares(node, three_nodes.name) == (pytest.approx(0.1), made_with[1])
    three_nodes.succeed("restore", node)
    assert " rate 940Mbit " in subprocess.check_output(command, text=True)
    assert shares(node, three_nodes.name) == made_with


@pytest.mark.parametrize(
    ("option", "value"), [("--cpu", "1.5"), ("--cpu", "nan"), ("--rate", "1e9")]
)
def test_invalid_limits_change_nothing(three_nodes: Emulator, option: str, value: str) -> None:
    node = three_nodes.node(2)
    link = ["tc", "class", "show", "dev", node]
    before = shares(node, three_nodes.name), subprocess.check_output(link)
    refused = three_nodes("slow", node, option, value)
    assert refused.returncode == 2 and f"{node}: " in refused.stderr
    assert (shares(node, three_nodes.name), subprocess.check_output(link)) == before


def test_ssh_between_nodes_checks_host_keys(three_nodes: Emulator) -> None:
    assert three_nodes.on(1, "ssh", three_nodes.node(2), "hostname") == f"{three_nodes.node(2)}\n"
    by_wrong_name = ("-o", f"HostKeyAlias={three_nodes.node(3)}", three_nodes.node(2), "true")
    refused = three_nodes("exec", three_nodes.node(1), "--", "ssh", *by_wrong_name)
    assert refused.returncode == 255 and "Host key verification failed" in refused.stderr


def test_the_host_reaches_nodes_by_ssh(three_nodes: Emulator) -> None:
    assert three_nodes.succeed("ssh", three_nodes.node(3), "hostname") == f"{three_nodes.node(3)}\n"


def test_the_exit_code_of_a_command_is_kept(three_nodes: Emulator) -> None:
    assert three_nodes("exec", three_nodes.node(1), "--", "sh", "-c", "exit 7").returncode == 7


def test_a_plain_mpirun_spans_the_nodes(three_nodes: Emulator) -> None:
    said = three_nodes.on(2, "mpirun", "-np", "3", "hostname")
    assert sorted(said.split()) == [three_nodes.node(number) for number in (1, 2, 3)]


def test_training_runs_on_all_nodes(three_nodes: Emulator, tmp_path: Path) -> None:
    three_nodes.on(
        1, "mpirun", "-np", "3", "python", "-m", "edgeddl.train", "--dataset", "shapes",
        "--model", "resnet9", "--limit-train", "48", "--limit-test", "12", "--batch-size", "8",
        "--max-steps", "2", "--run-dir", str(tmp_path / "run"), timeout=120,
    )  # fmt: skip
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["steps"] == 2
    hosts = [(rank["host"], rank["threads"]) for rank in summary["ranks"]]
    assert hosts == [(three_nodes.node(number), 1) for number in (1, 2, 3)]


def test_out_of_memory_kills_one_process_of_one_node(three_nodes: Emulator) -> None:
    hog = three_nodes("exec", three_nodes.node(3), "--", "python", "-c", HOG)
    assert hog.returncode == -9
    assert three_nodes.states() == ["up"] * 3
    three_nodes.on(1, "python", "-c", HOG)  # 4 GiB are enough


def test_memory_of_a_node_is_counted(three_nodes: Emulator) -> None:
    cgroup = NodeCgroup(find_hierarchy(), three_nodes.name, three_nodes.node(1))
    assert 0 < cgroup.memory_bytes() < 2**30
