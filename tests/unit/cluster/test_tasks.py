"""The parts of fab's tasks that need no boards."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from cluster.errors import ClusterError
from cluster.inventory_file import read_inventory
from cluster.tasks import linpack, status
from cluster.tasks.board import Board, BoardError
from cluster.tasks.boards import VARIABLE, find_inventory
from cluster.tasks.fetch import copy_folder
from cluster.tasks.run_command import shell_line
from cluster.tasks.ssh_settings import parse_settings, ssh_command
from cluster.tasks.training import mpirun_line, named_run
from tests.support import REPOSITORY

INVENTORY = """\
cluster:
  hosts:
    pi-01: {ansible_host: 10.0.0.1}
    pi-02: {ansible_host: 10.0.0.2, ansible_port: 2222}
  vars:
    cluster_network: 10.0.0.0/24
    cluster_head: pi-01
    ansible_user: pi
    ansible_ssh_common_args: -F "my config"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "boards.example.yml").write_text("not looked at")
    return tmp_path


def test_the_only_inventory_is_used(folder: Path) -> None:
    with pytest.raises(ClusterError, match=r"copy boards\.example\.yml to boards\.yml"):
        find_inventory(None, folder)
    (folder / "boards.yml").write_text(INVENTORY)
    assert find_inventory(None, folder).path == folder / "boards.yml"
    (folder / "other.yml").write_text(INVENTORY)
    with pytest.raises(ClusterError, match=r"several inventories in .*: boards.yml, other.yml"):
        find_inventory(None, folder)


def test_an_option_overrides_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "boards.yml").write_text(INVENTORY)
    monkeypatch.setenv(VARIABLE, str(folder / "absent.yml"))
    with pytest.raises(ClusterError, match=r"absent\.yml"):
        find_inventory(None, folder)
    assert find_inventory(str(folder / "boards.yml"), folder).user == "pi"


def test_ssh_gets_the_inventorys_arguments(folder: Path) -> None:
    (folder / "boards.yml").write_text(INVENTORY)
    host = find_inventory(None, folder).hosts[1]
    assert ssh_command(host) == [*("ssh", "-F", "my config", "-p", "2222", "-l", "pi", "10.0.0.2")]


def test_output_of_ssh_is_parsed(tmp_path: Path) -> None:
    key, known = tmp_path / "key", tmp_path / "known"
    key.touch()
    known.touch()
    text = (
        f"hostname 10.0.0.1\nport 22\nuser pi\nidentityfile {key}\nidentityfile ~/.ssh/absent\n"
        f"identitiesonly yes\nuserknownhostsfile {known} /absent\nconnecttimeout 5\n"
    )
    settings = parse_settings(text)
    assert (settings.keys, settings.known_hosts) == ((str(key),), (str(known),))
    assert (settings.use_agent, settings.connect_seconds, settings.proxy) == (False, 5, None)
    other = parse_settings(text.replace("connecttimeout 5", "connecttimeout none\nproxyjump a,b"))
    assert (other.connect_seconds, other.proxy) == (10, "ssh -J a -W %h:%p b")


def test_the_command_line_of_mpirun(folder: Path) -> None:
    (folder / "boards.yml").write_text(INVENTORY)
    cluster = find_inventory(None, folder)
    boards = [Board(host) for host in cluster.hosts]
    train = "python -m edgeddl.train --run-dir 'a b'"
    assert mpirun_line(boards, cluster, ["--run-dir", "a b"]) == f"mpirun -np 2 {train}"
    some = mpirun_line(boards[1:], cluster, ["--run-dir", "a b"])
    assert some == f"mpirun -np 1 --host pi-02:1 {train}"


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        (["--run-dir", "x", "--epochs", "1"], "x"),
        (["--epochs", "1", "--run-dir=x"], "x"),
        (["--run-dir"], None),
        (["--epochs", "1"], None),
    ],
)
def test_the_run_folder_of_the_options(options: list[str], folder: str | None) -> None:
    assert named_run(options) == folder


def test_a_single_word_is_a_shell_command_line() -> None:
    assert shell_line(["df | tail"]) == "df | tail"
    assert shell_line(["echo", "a b", "|"]) == "echo 'a b' '|'"
    with pytest.raises(ClusterError, match="no command"):
        shell_line([])


BITS = ("under_voltage", "frequency_capped", "throttled", "soft_temperature_limit")


def throttling(now: str = "", since_boot: str = "") -> dict[str, dict[str, bool]]:
    return {bit: {"now": bit == now, "since_boot": bit in (now, since_boot)} for bit in BITS}


def test_cells_of_a_board() -> None:
    sizes = {"total_bytes": 4 * 2**30, "available_bytes": 2**30, "free_bytes": 2**31}
    sensors = {
        "temperature_celsius": 81.4,
        "clock_hertz": 1.5e9,
        "throttling": throttling("throttled", "under_voltage"),
    }
    info = {"sensors": sensors, "memory": sizes, "disk": sizes, "edgeddl": "1", "kernels": "k"}
    assert status.describe(info) == (
        "81 °C", "1500 MHz", "hot now", "yes since boot", "1.0 of 4.0 GiB", "2.0 of 4.0 GiB",
        "1", "k",
    )  # fmt: skip
    assert status.describe({"disk": sizes})[:5] == ("-",) * 5  # an older edgeddl


def test_a_board_that_is_not_throttled() -> None:
    assert status.describe_throttling(throttling(), status.SLOWED_BY) == "no"


def test_rows_of_linpack() -> None:
    record = {"gflops": 9.87, "share_of_peak": 0.41, "passed": False, "verdict": "sick"}
    assert linpack._row("pi-01", record, "share_of_peak") == (
        *("pi-01", "9.87", "41%"),
        *("FAILED", "sick"),
    )
    assert linpack._row("pi-02", {"verdict": "sick"}, "share_of_peak")[1:4] == ("-", "-", "-")


def test_the_tasks_are_listed() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("fab"), "-l"],
        cwd=REPOSITORY / "cluster", env=os.environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    tasks = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {"status", "deploy", "linpack", "train", "stop", "logs", "fetch", "run"} < set(tasks)


def test_the_example_is_read_by_fab() -> None:
    path = REPOSITORY / "cluster" / "inventory" / "boards.example.yml"
    board = Board(read_inventory(path).head)
    assert (board.environment, board.work) == ("/opt/edgeddl/venv", "/opt/edgeddl/work")


@pytest.mark.parametrize("name", ["../../.bashrc", "..", "/etc/passwd"])
def test_a_head_cannot_write_outside_the_runs_folder(name: str, tmp_path: Path) -> None:
    entry = paramiko.SFTPAttributes()
    entry.filename, entry.st_mode = name, stat.S_IFREG
    sftp = SimpleNamespace(listdir_attr=lambda path: [entry])
    head: Any = SimpleNamespace(
        name="pi-01", connect=lambda: SimpleNamespace(sftp=lambda: sftp), work="/work"
    )
    with pytest.raises(BoardError, match="is not a file name"):
        copy_folder(head, "/work/runs/a", tmp_path / "a")
    assert not list(tmp_path.iterdir())
