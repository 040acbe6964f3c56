"""A real Prometheus watches a real run: every panel and every rule has something to show."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster.monitoring import local, targets
from tests.support import REPOSITORY, free_ports, mpi_job
from tests.unit.monitoring.dashboard_queries import Asked, of_panels, of_rules

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="prometheus is not there: apt install prometheus"
    ),
]
NODE_EXPORTER = shutil.which("prometheus-node-exporter")
# Alerts whose cause is not there: all nodes answer, ranks are equal, the disk has room.
QUIET = {"NodeSilent", "Straggler", "LossNotFinite", "EfficiencyLow", "DiskFull"}
PATIENCE_SECONDS = 90.0
TRAINING = (
    "-m", "edgeddl.train", "--dataset", "shapes", "--model", "resnet9", "--batch-size", "8",
    "--limit-train", "64", "--limit-test", "16", "--threads", "1", "--epochs", "100000",
    "--progress", "none",
)  # fmt: skip


class Prometheus:
    """With the committed settings, but it scrapes every second, and alerts fire after 5 s.

    promtool tests how long they really take (unit/monitoring/rules.test.yml).
    """

    def __init__(
        self, folder: Path, port: int, groups: list[dict[str, Any]], free_port: int
    ) -> None:
        self.free_port = free_port  # for two more ranks
        self.url = f"http://127.0.0.1:{port}"
        settings = (local.HERE / "prometheus.yml").read_text()
        settings = settings.replace(": 5s", ": 1s").replace(": 4s", ": 1s")
        (folder / "prometheus.yml").write_text(settings)
        rules = (local.HERE / "rules.yml").read_text().replace("for: 1m\n", "for: 5s\n")
        (folder / "rules.yml").write_text(rules)
        (folder / "targets.json").write_text(targets.render(groups))
        self.command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]

    def query(self, expr: str) -> list[dict[str, Any]]:
        place = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
        try:
            with urllib.request.urlopen(place, timeout=30) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # not ready yet
                return []
            pytest.fail(f"{expr}: {error.read().decode()}")
        except urllib.error.URLError:  # not listening yet
            return []

    def wait_for(self, expr: str, fits: Callable[[Any], bool] = bool) -> list[dict[str, Any]]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not fits(found := self.query(expr)):
            if time.monotonic() > deadline:
                pytest.fail(f"nothing after {PATIENCE_SECONDS:.0f} s: {expr}: {found}")
            time.sleep(0.5)
        return found


def service(command: list[str], **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def board(folder: Path) -> Path:
    """A Pi 4's files; but its cores' time passes as this machine's does."""
    shutil.copytree(REPOSITORY / "tests/fixtures/pi4", folder)
    (folder / "proc/stat").unlink()
    (folder / "proc/stat").symlink_to("/proc/stat")
    return folder


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """With two ranks at work, room for two more, an exporter, and Debian's where it is there."""
    folder = tmp_path_factory.mktemp("prometheus")
    first = free_ports(7)
    ranks, exporter, machine, own = first, first + 4, first + 5, first + 6
    host = {"host": os.uname().nodename}
    groups = [
        {
            "targets": [f"127.0.0.1:{port}" for port in range(ranks, ranks + 4)],
            "labels": {"job": "rank", **host},
        },
        {"targets": [f"127.0.0.1:{exporter}"], "labels": {"job": "node", **host}},
        {"targets": [f"127.0.0.1:{machine}"], "labels": {"job": "machine", **host}},
    ]
    server = Prometheus(folder, own, groups, free_port=ranks + 2)
    shutil.copyfile(REPOSITORY / "tests/fixtures/linpack.json", folder / "linpack.json")
    root = str(board(folder / "board"))
    commands = [
        server.command,
        [sys.executable, "-m", "edgeddl", "exporter", "--port", str(exporter), "--root", root],
    ]
    if NODE_EXPORTER:
        commands.append([NODE_EXPORTER, f"--web.listen-address=127.0.0.1:{machine}"])
    with ExitStack() as running:
        for command in commands:
            process = service(command, EDGEDDL_STATE=str(folder))
            running.callback(process.wait)
            running.callback(process.terminate)
        running.enter_context(train(folder / "tame", ranks))
        yield server


def train(
    folder: Path, port: int, *words: str, env: dict[str, str] | None = None
) -> AbstractContextManager[subprocess.Popen[str]]:
    place = ("--run-dir", folder, "--metrics-port", str(port))
    return mpi_job(2, *TRAINING, *place, *words, env=env)


@pytest.mark.parametrize("asked", of_panels(), ids=lambda asked: asked.where)
def test_a_panel_has_something_to_show(prometheus: Prometheus, asked: Asked) -> None:
    if "node_" in asked.expr.replace("edgeddl_node_", "") and not NODE_EXPORTER:
        pytest.skip("prometheus-node-exporter is not there: apt install prometheus-node-exporter")
    found = prometheus.wait_for(asked.expr)
    limits = asked.panel["fieldConfig"]["defaults"]
    for series in found:
        value = float(series["value"][1])
        assert math.isfinite(value)
        assert limits.get("min", -math.inf) <= value <= limits.get("max", math.inf) * (1 + 1e-6)


@pytest.mark.parametrize("asked", of_rules(), ids=lambda asked: asked.where)
def test_a_rule_finds_something(prometheus: Prometheus, asked: Asked) -> None:
    if asked.where in QUIET:
        prometheus.query(asked.expr)  # fails if it is not understood
    else:
        assert prometheus.wait_for(asked.expr)


def test_throughput_is_the_same_whoever_tells_it(prometheus: Prometheus) -> None:
    prometheus.wait_for('edgeddl_step{run="tame"} > 50')
    (by_rank_0,) = prometheus.query('edgeddl_cluster_images_per_second{run="tame"}')
    (summed,) = prometheus.query('sum(edgeddl_images_per_second{run="tame"})')
    # of steps a scrape apart, on a machine that may be busy with other things
    ratio = float(summed["value"][1]) / float(by_rank_0["value"][1])
    assert 0.3 < ratio < 3


def test_a_run_that_diverges_is_an_alert_though_it_has_ended(
    prometheus: Prometheus, tmp_path: Path
) -> None:
    sign = tmp_path / "diverge"
    model = ("--model", "tests.models:DivergingNet")
    environment = {"TEST_DIVERGES": str(sign)}
    with train(tmp_path / "wild", prometheus.free_port, *model, env=environment) as job:
        prometheus.wait_for('edgeddl_step{run="wild", rank="1"} > 0')
        sign.touch()
        output, errors = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 2 and "training has diverged" in errors, output + errors
    alert = 'ALERTS{alertname="LossNotFinite", run="wild", alertstate="firing"}'
    prometheus.wait_for(alert)
    prometheus.wait_for('edgeddl_loss{run="wild"}', lambda found: not found)
    assert prometheus.query(alert)


def test_a_hot_board_with_a_weak_supply_is_an_alert(prometheus: Prometheus) -> None:
    for name in ("UnderVoltage", "Hot", "Throttled"):
        prometheus.wait_for(f'ALERTS{{alertname="{name}", alertstate="firing"}}')


def test_all_that_is_there_answers(prometheus: Prometheus) -> None:
    jobs = ["rank", "node", *(["machine"] if NODE_EXPORTER else [])]
    for job in jobs:
        prometheus.wait_for(f'up{{job="{job}"}} == 1')
