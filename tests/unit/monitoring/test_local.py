"""Monitoring on this machine: up and down, with a real Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.monitoring import grafana, targets
from cluster.monitoring.__main__ import build_parser, main
from cluster.monitoring.local import Monitoring, default_folder
from tests.support import REPOSITORY, free_ports

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed: apt install prometheus"
)
SAMPLE = REPOSITORY / "cluster/inventory/boards.example.yml"
# a fake Grafana: records its settings and listens on its port
GRAFANA = f"""\
#!{sys.executable}
import http.server, json, os, pathlib, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

folder = pathlib.Path(os.environ["GF_PATHS_PROVISIONING"])
settings = {{name: value for name, value in os.environ.items() if name.startswith("GF_")}}
(folder / "seen.json").write_text(json.dumps({{"words": sys.argv[1:], "settings": settings}}))
place = os.environ["GF_SERVER_HTTP_ADDR"], int(os.environ["GF_SERVER_HTTP_PORT"])
http.server.HTTPServer(place, Handler).serve_forever()
"""


class Command:
    """Runs `python -m cluster.monitoring` with its own folder and ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.monitoring = Monitoring(folder)
        self.port = free_ports(2)
        self.ports = [f"--prometheus-port={self.port}", f"--grafana-port={self.port + 1}"]

    def __call__(self, *words: str) -> int:
        return main(["--folder", str(self.folder), *words])

    def up(self, *words: str) -> int:
        # with an inventory, this machine's exporter, whose port is fixed, is not started
        return self("up", "--inventory", str(SAMPLE), *self.ports, *words)

    def fetch(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return json.load(answer)["data"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path / "state")
    yield command
    command("down")


@needs_prometheus
def test_up_again_and_down(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.up() == 0
    pid = command.monitoring.services()[0].pid
    assert pid and f"http://127.0.0.1:{command.port}" in capsys.readouterr().out
    assert stat.S_IMODE(command.folder.stat().st_mode) == 0o700
    assert command.up() == 0
    assert command.monitoring.services()[0].pid == pid
    rules = {
        rule["name"]
        for group in command.fetch("/api/v1/rules")["groups"]
        for rule in group["rules"]
    }
    assert {"NodeSilent", "run:edgeddl_samples:rate1m"} <= rules
    capsys.readouterr()
    assert command("down") == 0
    assert "prometheus" in capsys.readouterr().out
    assert not Path(f"/proc/{pid}").exists()
    assert command("down") == 0
    assert "nothing was running" in capsys.readouterr().out


@needs_prometheus
def test_status_lists_targets(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.up() == 0
    while len(command.fetch("/api/v1/targets")["activeTargets"]) < 4 * 6:
        time.sleep(0.2)
    capsys.readouterr()
    assert command("status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert {service["name"] for service in status["services"]} == {
        "prometheus",
        "grafana",
        "exporter",
    }
    assert {target["host"] for target in status["targets"]} == {"pi-01", "pi-02", "pi-03", "pi-04"}
    assert command("status") == 0
    assert "192.168.1.104:9100" in capsys.readouterr().out


@needs_prometheus
def test_a_new_inventory_is_loaded_while_running(command: Command, tmp_path: Path) -> None:
    assert command.up() == 0
    other = tmp_path / "other.yml"
    other.write_text(SAMPLE.read_text().replace("pi-04", "pi-99"))
    assert command("up", "--inventory", str(other), *command.ports) == 0
    hosts: set[str] = set()
    while "pi-99" not in hosts:
        time.sleep(0.2)
        found = command.fetch("/api/v1/targets")["activeTargets"]
        hosts = {target["labels"]["host"] for target in found}


@needs_prometheus
def test_a_changed_port_is_rejected_while_running(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.up() == 0
    assert command.up("--prometheus-port", str(command.port + 1)) == 2
    assert "already up at another address" in capsys.readouterr().err


@needs_prometheus
def test_a_port_in_use(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", command.port)):
        assert command.up() == 2
    error = capsys.readouterr().err
    assert f"port {command.port}" in error and "hint:" in error
    assert command.monitoring.services()[0].pid is None


@needs_prometheus
def test_an_address_of_another_machine(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.up("--address", "192.0.2.1") == 2
    assert "192.0.2.1" in capsys.readouterr().err


@needs_prometheus
def test_a_reused_pid_is_not_killed(command: Command) -> None:
    assert command.up() == 0
    record = command.folder / "prometheus.json"
    known = json.loads(record.read_text())
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            record.write_text(json.dumps(known | {"pid": other.pid}))
            assert command("down") == 0
            assert other.poll() is None
        finally:
            other.kill()
    record.write_text(json.dumps(known))


def test_a_missing_prometheus_has_a_hint(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert command.up() == 2
    error = capsys.readouterr().err
    assert "prometheus is not installed" in error and "apt install prometheus" in error
    assert not command.folder.exists()


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_folder_is_accepted_before_and_after_the_command(command: str) -> None:
    parse = build_parser().parse_args
    for words in (["--folder", "state", command], [command, "--folder", "state"]):
        assert parse(words).folder == Path("state")
    assert parse([command]).folder == default_folder()


def test_an_invalid_inventory_starts_nothing(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("cluster:\n  hosts: {}\n")
    assert command("up", "--inventory", str(wrong)) == 2
    assert "wrong.yml" in capsys.readouterr().err
    assert not command.folder.exists()


@needs_prometheus
def test_grafana_gets_a_data_source_and_a_password(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "home/bin/grafana"
    program.parent.mkdir(parents=True)
    program.write_text(GRAFANA)
    program.chmod(0o755)
    assert command.up("--grafana", str(tmp_path / "home")) == 0
    password_file = command.monitoring.password_file
    assert str(password_file) in capsys.readouterr().out
    assert stat.S_IMODE(password_file.stat().st_mode) == 0o600
    assert len(password_file.read_text()) == 24
    folder = command.folder / "grafana/provisioning"
    seen = json.loads((folder / "seen.json").read_text())
    assert seen["words"] == ["server", "--homepath", str(tmp_path / "home")]
    assert seen["settings"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert seen["settings"]["GF_SECURITY_ADMIN_PASSWORD"] == f"$__file{{{password_file}}}"
    sources = json.loads((folder / "datasources/edgeddl.yml").read_text())["datasources"]
    assert sources[0]["url"] == f"http://127.0.0.1:{command.port}"
    providers = json.loads((folder / "dashboards/edgeddl.yml").read_text())["providers"]
    assert providers[0]["options"]["path"] == str(grafana.DASHBOARDS)
    for kind in ("alerting", "notifiers", "plugins"):  # Grafana logs an error without them
        assert (folder / kind).is_dir()
    password = password_file.read_text()
    pid = command.monitoring.services()[1].pid
    assert command("down") == 0
    assert not Path(f"/proc/{pid}").exists()
    assert command.up("--grafana", str(tmp_path / "home")) == 0
    assert password_file.read_text() == password


@needs_prometheus
def test_monitoring_without_an_inventory_includes_this_machine(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        socket.create_server(("127.0.0.1", targets.EXPORTER_PORT)).close()
    except OSError:
        pytest.skip(f"port {targets.EXPORTER_PORT} is in use: an exporter is running")
    assert command("up", *command.ports) == 0
    assert "--metrics-port 9836" in capsys.readouterr().out
    states: dict[str, str] = {}
    while states.get("node") != "up":
        time.sleep(0.2)
        states = {target["job"]: target["state"] for target in command.monitoring.targets()}
    (host,) = {target["host"] for target in command.monitoring.targets()}
    assert host == os.uname().nodename
