"""Training runs when a node loses power or network."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.emulator import ENVIRONMENT, Emulator
from tests.support import REPOSITORY

pytestmark = pytest.mark.cluster

TRAIN = (
    "mpirun", "-np", "3", "python", "-m", "edgeddl.train", "--dataset", "shapes", "--model",
    "resnet9", "--limit-train", "3000", "--limit-test", "12", "--batch-size", "4",
    "--epochs", "1000", "--stall-warning-seconds", "2", "--stall-timeout-seconds", "5",
)  # fmt: skip
# much longer than the timeout, for busy machines
LONGEST_SECONDS = 60


def start_training(emulator: Emulator, folder: Path) -> subprocess.Popen[str]:
    """Start a run on the first node and wait for its first checkpoint."""
    run = folder / "run"
    options = ("--run-dir", str(run), "--checkpoint-every", "2")
    job = subprocess.Popen(
        emulator.command("exec", emulator.node(1), "--", *TRAIN, *options),
        env=ENVIRONMENT, cwd=REPOSITORY, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + LONGEST_SECONDS
    while not list(run.glob("checkpoints/*.npz")):
        assert job.poll() is None and time.monotonic() < deadline, "training does not start"
        time.sleep(0.1)
    return job


@pytest.fixture
def training(three_nodes: Emulator, tmp_path: Path) -> subprocess.Popen[str]:
    return start_training(three_nodes, tmp_path)


@pytest.mark.parametrize("fault", ["kill", "cut"])
def test_a_lost_node_is_named_and_ends_the_job(
    three_nodes: Emulator, training: subprocess.Popen[str], fault: str
) -> None:
    lost = three_nodes.node(3)
    three_nodes.succeed(fault, lost)
    assert three_nodes.states() == ["up", "up", {"kill": "down", "cut": "cut"}[fault]]
    said, _ = training.communicate(timeout=LONGEST_SECONDS)
    assert training.returncode == 3, said
    verdict = rf"error: gave up after \d+ s in .*; not joined: .*rank 2 on {lost} \(no heartbeat\)"
    assert re.search(verdict, said), said
    for number in (1, 2):
        assert "python" not in three_nodes.on(number, "ps", "-e", "-o", "comm=")
    three_nodes.succeed("restore", lost)
    assert three_nodes.states() == ["up"] * 3
    assert three_nodes.succeed("ssh", lost, "hostname") == f"{lost}\n"


def test_a_lost_daemon_fails_the_job(
    three_nodes: Emulator, training: subprocess.Popen[str]
) -> None:
    three_nodes.on(3, "pkill", "-KILL", "prted")
    said, _ = training.communicate(timeout=LONGEST_SECONDS)
    assert training.returncode != 0, said
    assert three_nodes.node(3) in said.partition("run  ")[2]  # after the banner


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_the_one_that_is_named(
    three_nodes: Emulator, training: subprocess.Popen[str], rank: int
) -> None:
    """Open MPI may abort its neighbours first, which lose their connections to it."""
    node = three_nodes.node(rank + 1)
    three_nodes.on(rank + 1, "pkill", "-KILL", "-n", "-f", "python -m edgeddl.train")
    said, _ = training.communicate(timeout=LONGEST_SECONDS)
    assert training.returncode in (3, 128 + signal.SIGKILL), said
    last = said.splitlines()[-1]
    by_edgeddl = f"error: rank {rank} on {node} was killed or crashed"
    by_open_mpi = rf"process rank {rank} with PID \d+ on node {node} exited on\s+signal 9"
    assert by_edgeddl in last or re.search(by_open_mpi, said), said
    if "Socket closed" in said:
        assert by_edgeddl in last, said
