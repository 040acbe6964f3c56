"""fab with real sshds, including faults."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.emulate.state import ROOT
from tests.cluster.emulator import Emulator
from tests.cluster.fab import Fab

pytestmark = pytest.mark.cluster

SHORT = (
    "--dataset", "shapes", "--model", "resnet9", "--limit-train", "48", "--limit-test", "12",
    "--batch-size", "8",
)  # fmt: skip
LONGEST_SECONDS = 60


class LightFab(Fab):
    """fab on light nodes, which share their work folder with this machine."""

    def __init__(self, emulator: Emulator) -> None:
        super().__init__(emulator)
        self.job = ROOT / emulator.name / "work" / "job"
        self.two = f"{emulator.node(1)},{emulator.node(2)}"

    def start_long(self, name: str, terminal: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start an endless run on two boards and wait for its first checkpoint."""
        options = ("--epochs", "100000", "--checkpoint-every", "2", "--run-dir", f"runs/{name}")
        process = self.start("train", "-H", self.two, "--", *SHORT, *options, terminal=terminal)
        checkpoints = self.job.parent / "runs" / name / "checkpoints"
        wait_for(lambda: any(checkpoints.glob("*.npz")), "no checkpoint")
        return process


def wait_for(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.1)


@pytest.fixture(scope="module")
def fab(three_nodes: Emulator) -> Iterator[LightFab]:
    fab = LightFab(three_nodes)
    yield fab
    shutil.rmtree(fab.results, ignore_errors=True)


def test_status_of_boards_that_answer_and_one_that_does_not(fab: LightFab, tmp_path: Path) -> None:
    first = fab.emulator.node(1)
    more = fab.inventory.read_text().replace(
        "  vars:", f'    absent:\n      ansible_host: "{address(fab, 50)}"\n  vars:'
    )
    (tmp_path / "more.yml").write_text(more)
    done = fab("status", "--inventory", str(tmp_path / "more.yml"))
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert done.returncode == 1
    assert lines[first][0] == "yes" and "GiB" in lines[first]
    assert lines["absent"] == ["no", *["-"] * 8]
    assert done.stderr.strip().startswith("absent: ") and "Traceback" not in done.stderr
    boards = json.loads(fab.succeed("status", "--json"))
    assert [board["host"] for board in boards] == [fab.emulator.node(n) for n in (1, 2, 3)]
    assert all(board["disk"]["free_bytes"] > 0 for board in boards)


def address(fab: LightFab, number: int) -> str:
    return fab.emulator.network.rpartition(".")[0] + f".{number}"


def test_run_passes_arguments_unchanged(fab: LightFab) -> None:
    said = fab.succeed("run", "--", "printf", "%s|", "a b", "$HOME")
    assert said.count("a b|$HOME|") == 3
    said = fab.succeed("run", "-H", fab.emulator.node(2), "--", "hostname | tr a-z A-Z")
    assert fab.emulator.node(2).upper() in said and fab.emulator.node(1) not in said


def test_a_failed_board_is_listed_with_its_output(fab: LightFab) -> None:
    bad = fab.emulator.node(2)
    done = fab("run", "--", f'[ "$(hostname)" != {bad} ] || {{ seq 20 >&2; exit 7; }}')
    assert done.returncode == 1
    assert [line.split()[1] for line in done.stdout.splitlines()[2:]] == ["ok", "exit", "ok"]
    assert done.stderr.split() == [f"{bad}:", "exit", "code", "7", *map(str, range(11, 21))]


@pytest.mark.parametrize(
    ("known", "complaint"), [("none", "unknown host key"), ("wrong", "host key has changed")]
)
def test_an_unknown_host_key_is_rejected(
    fab: LightFab, tmp_path: Path, known: str, complaint: str
) -> None:
    folder = ROOT / fab.emulator.name
    keys = [line.split(" ", 1) for line in (folder / "known_hosts").read_text().splitlines()]
    first, second = keys[0], keys[1]
    lines = {"none": "", "wrong": f"{first[0]} {second[1]}\n"}
    (tmp_path / "known_hosts").write_text(lines[known])
    config = (folder / "ssh_config").read_text()
    config = config.replace(f"{folder}/known_hosts", f"{tmp_path}/known_hosts")
    (tmp_path / "ssh_config").write_text(config)
    inventory = fab.inventory.read_text().replace(
        str(folder / "ssh_config"), f"{tmp_path}/ssh_config"
    )
    (tmp_path / "boards.yml").write_text(inventory)
    done = fab(
        "run", "-H", fab.emulator.node(1), "--inventory", f"{tmp_path}/boards.yml", "--", "id"
    )
    assert done.returncode == 1
    assert complaint in done.stdout and "uid=" not in done.stdout


def test_a_run_from_start_to_fetched_files(fab: LightFab) -> None:
    options = (*SHORT, "--max-steps", "2")
    said = fab.succeed("train", "-H", fab.two, "--", *options)
    ranks = fab.two.replace(",", ":1,") + ":1"
    assert f"$ mpirun -np 2 --host {ranks} python -m edgeddl.train {' '.join(options)}" in said
    summary = json.loads((fab.results / "resnet9-shapes" / "summary.json").read_text())
    assert [rank["host"] for rank in summary["ranks"]] == fab.two.split(",")
    assert list((fab.results / "resnet9-shapes" / "checkpoints").glob("*.npz"))
    assert fab.succeed("fetch").splitlines()[-1].split()[:2] == ["resnet9-shapes", "0"]  # all here


def test_resume_auto_continues_the_run_with_its_options(fab: LightFab) -> None:
    """It resumes the newest unfinished run; without its options ResNet-18 would start instead."""
    folder = ("--run-dir", "runs/to-resume")
    fab.succeed("train", "-H", fab.two, "--", *SHORT, *folder, "--epochs", "2", "--max-steps", "2")
    said = fab.succeed("train", "-H", fab.two, "--", "--resume", "auto")
    assert "--resume auto: the newest unfinished run is runs/to-resume" in said
    summary = json.loads((fab.results / "to-resume" / "summary.json").read_text())
    assert summary["options"]["model"] == "resnet9" and summary["epochs"] == 2


def test_an_invalid_option_keeps_its_exit_code(fab: LightFab) -> None:
    done = fab("train", "-H", fab.emulator.node(1), "--", "--epochs", "none")
    assert done.returncode == 2
    assert "--epochs" in done.stdout and "exit code 2" in done.stderr


def test_ctrl_c_writes_a_checkpoint_and_the_bar_is_shown(fab: LightFab) -> None:
    terminal, other_end = pty.openpty()
    process = fab.start_long("interrupted", other_end)
    os.close(other_end)
    os.kill(process.pid, signal.SIGINT)
    said = read_all(terminal)
    assert process.wait(timeout=LONGEST_SECONDS) == 130, said
    assert "\repoch 1/100000 |" in said and "stopping after the current step" in said
    summary = json.loads((fab.results / "interrupted" / "summary.json").read_text())
    newest = max((fab.results / "interrupted" / "checkpoints").glob("checkpoint-*.npz"))
    assert summary["stopped"] and newest.name == f"checkpoint-{summary['steps']:08}.npz"


def read_all(terminal: int) -> str:
    said = b""
    try:
        while words := os.read(terminal, 65536):
            said += words
    except OSError:  # a closed terminal
        os.close(terminal)
    return said.decode()


def test_a_run_outlives_the_connection(fab: LightFab) -> None:
    following = fab.start_long("left-alone")
    fab.emulator.on(1, "pkill", "-f", "sshd: root@notty")
    said, _ = following.communicate(timeout=LONGEST_SECONDS)
    assert (
        following.returncode == 2 and "lost; the run continues as long as the board is up" in said
    ), said
    second = fab("train", "--", *SHORT)
    assert second.returncode == 2 and "a job is already running: mpirun -np 2 " in second.stderr
    assert "run " in fab.succeed("logs", "--no-follow", "--lines", "100")
    assert "stopping after the current step" in fab.succeed("stop")
    assert (fab.job / "code").read_text() == "130\n"
    again = fab("stop")
    assert again.returncode == 2 and "no training run" in again.stderr
    fab.succeed("fetch", "--run", "left-alone")
    assert json.loads((fab.results / "left-alone" / "summary.json").read_text())["stopped"]


def test_reboot_and_shutdown_ask_for_confirmation(fab: LightFab) -> None:
    for verb in ("reboot", "shutdown"):
        done = fab(verb)
        assert done.returncode == 2 and "stdin is not a terminal" in done.stderr
