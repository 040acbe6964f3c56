"""site.yml and the other playbooks on two freshly booted machines.

The tests depend on each other and run in this order, as a user would.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import edgeddl
from cluster.emulate.inventory import default_path
from cluster.inventory_file import read_inventory
from tests.cluster.conftest import NUMBER, reason_to_skip
from tests.cluster.emulator import Emulator
from tests.cluster.fab import Fab
from tests.provision.grafana_package import build as build_grafana_package
from tests.provision.playbook import ANSIBLE, Outcome, play, site
from tests.support import REPOSITORY

pytestmark = pytest.mark.provision
NODES = 2
USER = "pi"
MACHINE = os.uname().machine
# CIFAR-10's site may be unreachable; one test provides an archive
VARIABLES = {"data_dataset": "none"}
SHORT = (
    "--dataset", "shapes", "--model", "resnet9", "--limit-train", "64", "--limit-test", "32",
    "--batch-size", "16",
)  # fmt: skip
TRAIN = f"cd /opt/edgeddl/work && mpirun -np 2 python -m edgeddl.train {' '.join(SHORT)}"
REQUIRING = f"{TRAIN} --max-steps 1 --run-dir runs/required --require-linpack"
# Much too small to measure a machine's speed; its memory limit is not visible from inside.
SMALL = ["--size", "1000", "--memory-mib", "300", "--blas", "openblas"]
VERDICTS = ("healthy", "warn", "unknown")
NOWHERE = "http://127.0.0.1:9/simple"


class Boards(Emulator):
    def play(self, playbook: str, *words: str, **variables: str) -> Outcome:
        inventory, settings = default_path(self.name), VARIABLES | variables
        return play(site(playbook), inventory=inventory, words=words, variables=settings)

    def login(self, number: int, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line over ssh, as a user would type it."""
        return subprocess.run(
            [*self._ssh(number), "bash", "-l"],
            input=command,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def start_login(self, number: int, command: str) -> subprocess.Popen[str]:
        """Start the same in the background."""
        return subprocess.Popen(
            [*self._ssh(number), "bash", "-lc", shlex.quote(command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def address(self, number: int) -> str:
        return read_inventory(default_path(self.name)).hosts[number - 1].address

    def _ssh(self, number: int) -> list[str]:
        config = f"/var/lib/edgeddl/clusters/{self.name}/ssh_config"
        return ["ssh", "-F", config, "-o", f"User={USER}", self.node(number)]


@pytest.fixture(scope="module")
def boards() -> Iterator[Boards]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    boards = Boards(f"v{NUMBER}", f"10.214.{NUMBER % 250}.0/26")
    try:
        boards.succeed(
            "up", "--nodes", str(NODES), "--kind", "machine", "--cpu", "0.9", timeout=1200
        )
        yield boards
    finally:
        boards("down", timeout=300)
    assert boards.leftovers() == []


@pytest.fixture(scope="module")
def fab(boards: Boards) -> Iterator[Fab]:
    fab = Fab(boards, longest_seconds=900)
    yield fab
    shutil.rmtree(fab.results, ignore_errors=True)


def test_fresh_boards_can_be_checked(boards: Boards) -> None:
    outcome = boards.play("site", "--check")
    assert outcome.code == 0, outcome.output
    assert outcome.total("changed") > 10
    assert boards.on(1, "ls", "/opt") == ""


def test_an_unreachable_board_is_named_and_the_other_set_up(boards: Boards) -> None:
    boards.succeed("kill", boards.node(2))
    outcome = boards.play("site")
    boards.succeed("restore", boards.node(2), timeout=300)
    assert outcome.code == 4, outcome.output  # Ansible's exit code for unreachable hosts
    assert f"Failed (see above): {boards.node(2)}; succeeded: {boards.node(1)}" in outcome.output
    assert outcome.counts()[boards.node(1)]["failed"] == 0
    assert "edgeddl" in boards.login(1, "python -m pip list").stdout


def test_all_boards_are_set_up_and_a_second_run_changes_nothing(boards: Boards) -> None:
    first = boards.play("site")
    assert first.code == 0, first.output
    assert "All boards succeeded" in first.output
    second = boards.play("site")
    assert second.code == 0 and second.total("changed") == 0, second.output


def test_set_up_boards_can_be_checked(boards: Boards) -> None:
    outcome = boards.play("site", "--check")
    assert outcome.code == 0 and outcome.total("changed") == 0, outcome.output


def test_a_plain_mpirun_trains_on_all_boards(boards: Boards) -> None:
    done = boards.login(1, f"{TRAIN} --epochs 1")
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(NODES):
        assert re.search(rf"{boards.node(rank + 1)} +rank {rank},", done.stdout)
    assert "trained 2 steps" in done.stdout
    assert "runs/resnet9-shapes" in done.stdout


def test_ranks_on_other_boards_have_the_variables(boards: Boards) -> None:
    lines = boards.login(1, "mpirun -np 2 printenv EDGEDDL_DATA EDGEDDL_STATE").stdout.split()
    assert lines.count("/opt/edgeddl/data") == lines.count("/var/lib/edgeddl") == NODES


def test_every_package_has_a_pinned_version(boards: Boards) -> None:
    pinned = (ANSIBLE / "roles/edgeddl/files/constraints.txt").read_text().split()
    found = boards.login(1, "python -m pip list --format=freeze").stdout.split()
    own = ("edgeddl", "pip", "setuptools")  # from the checkout, from Debian, from scripts/
    assert [one for one in found if one not in pinned and not one.startswith(own)] == []


def test_names_resolve_to_the_clusters_network(boards: Boards) -> None:
    for number in range(1, NODES + 1):
        hosts = boards.on(number, "cat", "/etc/hosts")
        assert "127.0.1.1" not in hosts
        assert boards.on(number, "getent", "hosts", boards.node(2)).startswith("10.214.")


def test_status_of_provisioned_boards(boards: Boards, fab: Fab) -> None:
    said = json.loads(fab.succeed("status", "--json"))
    assert [board["host"] for board in said] == [boards.node(1), boards.node(2)]
    for board in said:
        assert board["edgeddl"] == edgeddl.__version__
        assert board["kernels"].startswith("native")
    assert fab.succeed("status").count(f" {edgeddl.__version__} ") == NODES


def test_training_from_the_laptop(boards: Boards, fab: Fab) -> None:
    said = fab.succeed("train", "--", *SHORT, "--epochs", "2", "--run-dir", "runs/by-fab")
    assert "epoch 2/2: mean loss" in said
    summary = json.loads((fab.results / "by-fab/summary.json").read_text())
    assert [rank["host"] for rank in summary["ranks"]] == [boards.node(1), boards.node(2)]
    assert list((fab.results / "by-fab/checkpoints").glob("*.npz"))


def test_deploying_again_changes_nothing(boards: Boards, fab: Fab) -> None:
    said = fab.succeed("deploy")
    assert Outcome(0, said).total("changed") == 0, said


def test_training_requires_a_linpack_result(boards: Boards) -> None:
    done = boards.login(1, REQUIRING)
    assert done.returncode == 2
    assert f"LINPACK has not been run on {boards.node(1)}" in done.stderr


def test_hpl_by_playbook(boards: Boards) -> None:
    outcome = boards.play("linpack", "-e", json.dumps({"linpack_options": SMALL}))
    assert outcome.code == 0, outcome.output
    for number in range(1, NODES + 1):
        kept = json.loads(boards.on(number, "cat", "/var/lib/edgeddl/linpack.json"))
        assert (kept["host"], kept["engine"]) == (boards.node(number), "hpl")
        assert kept["gflops"] > 0 and kept["passed"] and kept["verdict"] in VERDICTS


def test_training_starts_after_linpack(boards: Boards) -> None:
    done = boards.login(1, REQUIRING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("GFLOPS by hpl on 20") == NODES


def test_hpl_from_the_laptop(boards: Boards, fab: Fab) -> None:
    done = fab("linpack", "--", *SMALL)
    assert done.returncode in (0, 4), done.stdout + done.stderr  # 4: machines share a CPU
    result = json.loads((fab.results / "linpack.json").read_text())
    assert [node["engine"] for node in result["nodes"]] == ["hpl"] * NODES
    assert result["cluster"]["gflops"] > 0 and result["cluster"]["passed"]
    assert re.search(rf"all together +{result['cluster']['gflops']:.2f} ", done.stdout)


def test_wheels_from_a_folder_need_no_index(boards: Boards, tmp_path: Path) -> None:
    built = max((REPOSITORY / "build/provision").glob(f"wheels-{MACHINE}-py*.tar"), key=_age)
    with tarfile.open(built) as archive:
        archive.extractall(tmp_path / "wheels", filter="data")
    # an empty environment: everything must come from the folder
    boards.on(2, "rm", "-r", "/opt/edgeddl/venv")
    settings = {
        "edgeddl_wheelhouse": str(tmp_path / "wheels"),
        "python_env_pip_index_url": NOWHERE,
    }
    outcome = boards.play("deploy", **settings)
    assert outcome.code == 0, outcome.output
    assert "edgeddl" in boards.login(2, "python -m pip list").stdout
    again = boards.play("deploy", **settings)
    assert again.total("changed") == 0, again.output


def _age(path: Path) -> float:
    return path.stat().st_mtime


def test_data_is_copied_from_the_head(boards: Boards, tmp_path: Path) -> None:
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(b"stands for the archive" * 1000)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    settings = {"data_dataset": "cifar10", "data_archive": str(archive)}
    wrong = boards.play("site", "--tags", "python_env,data", **settings)
    assert wrong.code == 2 and "is not the official archive" in wrong.output
    right = boards.play("site", "--tags", "python_env,data", data_sha256=digest, **settings)
    assert right.code == 0, right.output
    copy = "/opt/edgeddl/data/cifar-10-binary.tar.gz"
    assert boards.on(2, "sha256sum", copy).startswith(digest)
    again = boards.play("site", "--tags", "python_env,data", data_sha256=digest, **settings)
    assert again.total("changed") == 0, again.output


def test_monitoring_is_installed(boards: Boards) -> None:
    checked = boards.play("monitoring", "--check")
    assert checked.code == 0, checked.output
    first = boards.play("monitoring")
    assert first.code == 0, first.output
    assert "Grafana is not installed" in first.output or "Grafana is at" in first.output
    second = boards.play("monitoring")
    assert second.code == 0 and second.total("changed") == 0, second.output
    for job in ("node", "machine"):
        assert len(_wait_for(boards, f'up{{job="{job}"}} == 1', NODES)) == NODES


def test_monitoring_listens_only_on_the_clusters_network(boards: Boards) -> None:
    for number in range(1, NODES + 1):
        lines = boards.on(number, "ss", "-ltnH").splitlines()
        places = [line.split()[3].rpartition(":") for line in lines]
        watching = {
            (address, port) for address, _, port in places if port in ("9090", "9100", "9835")
        }
        assert {address for address, _ in watching} == {boards.address(number)}
        assert len(watching) == (3 if number == 1 else 2)


def test_ranks_are_monitored_by_default(boards: Boards) -> None:
    job = boards.start_login(
        1,
        "cd /opt/edgeddl/work && echo $$ >job.pid && exec mpirun -np 2 python -m edgeddl.train"
        " --dataset shapes --model resnet9 --limit-train 64 --limit-test 16 --epochs 10000"
        " --batch-size 4 --progress none",
    )
    try:
        found = _wait_for(boards, "edgeddl_step > 2", NODES)
        assert {series["metric"]["host"] for series in found} == {
            boards.node(number) for number in range(1, NODES + 1)
        }
        assert _wait_for(boards, "run:edgeddl_samples:rate1m > 0", 1)
    finally:
        boards.login(1, "kill -INT $(cat /opt/edgeddl/work/job.pid)")
        job.communicate(timeout=300)


def _wait_for(boards: Boards, query: str, count: int) -> list[dict[str, Any]]:
    """Query the head's Prometheus until it returns this number of series."""
    place = f"http://{boards.address(1)}:9090/api/v1/query?{urlencode({'query': query})}"
    deadline = time.monotonic() + 300
    while True:
        with urlopen(place, timeout=30) as answer:
            found = json.load(answer)["data"]["result"]
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, f"{query}: {found}"
        time.sleep(1)


def test_grafana_gets_its_configuration_and_a_password(boards: Boards, tmp_path: Path) -> None:
    package, digest = build_grafana_package(tmp_path)
    given = {"grafana_package": str(package)}
    wrong = boards.play("monitoring", **given, grafana_package_sha256="0" * 64)
    assert wrong.code == 2 and "has the checksum" in wrong.output
    right = boards.play("monitoring", **given, grafana_package_sha256=digest)
    assert right.code == 0 and "Grafana is at" in right.output, right.output
    again = boards.play("monitoring")
    assert again.code == 0 and again.total("changed") == 0, again.output
    folder = "/etc/grafana/edgeddl"
    password = boards.on(1, "stat", "-c", "%a %U %G", f"{folder}/password").split()
    assert password == ["640", "root", "grafana"]
    assert len(boards.on(1, "ls", f"{folder}/dashboards").split()) == 4
    source = json.loads(boards.on(1, "cat", "/etc/grafana/provisioning/datasources/edgeddl.yml"))
    assert source["datasources"][0]["url"] == f"http://{boards.address(1)}:9090"
    assert f"{boards.address(1)}:3000" in boards.on(1, "ss", "-ltnH")


def test_reset_needs_confirmation(boards: Boards) -> None:
    outcome = boards.play("reset")
    assert outcome.code == 2 and "add -e reset_confirmed=true" in outcome.output
    assert "venv" in boards.on(1, "ls", "/opt/edgeddl")


def test_reset_leaves_nothing(boards: Boards) -> None:
    outcome = boards.play("reset", reset_confirmed="true")
    assert outcome.code == 0, outcome.output
    for number in range(1, NODES + 1):
        find = ("find", "/", "-xdev", "(", "-name", "proc", "-o", "-name", "sys", ")", "-prune")
        assert boards.on(number, *find, "-o", "-iname", "*edgeddl*", "-print") == ""
        mentions = boards("exec", boards.node(number), "--", "grep", "-r", "edgeddl", "/etc")
        assert mentions.stdout == ""
        keys = boards.on(number, "cat", f"/home/{USER}/.ssh/authorized_keys")
        assert len(keys.splitlines()) == 1  # the key of this connection
        assert "127.0.1.1" in boards.on(number, "cat", "/etc/hosts")
    again = boards.play("reset", reset_confirmed="true")
    assert again.code == 0 and again.total("changed") == 0, again.output
