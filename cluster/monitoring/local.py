"""Runs Prometheus, and Grafana if it is installed, on this machine, as the user, in one folder."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.emulate import folder_lock
from cluster.errors import ClusterError
from cluster.monitoring import grafana, targets
from cluster.monitoring.services import Service

HERE = Path(__file__).parent
LOOPBACK = "127.0.0.1"
# next to the exporters' ports; not 9090, which Debian's Prometheus service uses
PROMETHEUS_PORT = 9833
GRAFANA_PORT = 9834
GRAFANA_HOME = Path("/usr/share/grafana")
RETENTION = "30d"


@dataclass(frozen=True)
class Endpoints:
    """The address and ports on which the servers listen."""

    address: str = LOOPBACK
    prometheus_port: int = PROMETHEUS_PORT
    grafana_port: int = GRAFANA_PORT


def default_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local/state") / "edgeddl-monitoring"


class Monitoring:
    """The services of one folder, which holds configuration, logs, data and Grafana's password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._endpoints_file = self.folder / "endpoints.json"
        self.password_file = self.folder / "grafana-password"

    def up(
        self, groups: list[dict[str, Any]], endpoints: Endpoints, home: Path, *, alone: bool
    ) -> None:
        """Start services that are not running; with `alone`, this machine's exporter too."""
        program = _find_prometheus()
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        with folder_lock.locked(self.folder):
            self._check_same_endpoints(endpoints)
            self._write(groups, endpoints)
            prometheus, board, exporter = self.services()
            if prometheus.pid is None:
                prometheus.start(self._prometheus_command(program, prometheus))
            else:
                os.kill(prometheus.pid, signal.SIGHUP)  # reload the configuration
            if alone and exporter.pid is None and _is_free(exporter):
                listen = ["--address", exporter.address, "--port", str(exporter.port)]
                exporter.start([sys.executable, "-m", "edgeddl", "exporter", *listen])
            if board.pid is None and (home / "bin/grafana").exists():
                self._start_grafana(board, home, prometheus)

    def down(self) -> list[str]:
        """Stop all services and return the names of those that were running."""
        if not self.folder.exists():
            return []
        with folder_lock.locked(self.folder):
            return [service.name for service in self.services() if service.stop()]

    def services(self) -> tuple[Service, Service, Service]:
        endpoints = self._read_endpoints()
        address, folder = endpoints.address, self.folder
        return (
            Service("prometheus", folder, address, endpoints.prometheus_port, "/-/ready"),
            Service("grafana", folder, address, endpoints.grafana_port, "/api/health"),
            Service("exporter", folder, LOOPBACK, targets.EXPORTER_PORT, "/metrics"),
        )

    def targets(self) -> list[dict[str, str]]:
        """Return Prometheus' scrape targets and their state."""
        prometheus = self.services()[0]
        try:
            with urllib.request.urlopen(f"{prometheus.url}/api/v1/targets", timeout=10) as answer:
                found = json.load(answer)["data"]["activeTargets"]
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"{prometheus.url} does not answer: {error}", hint=f"see {prometheus.log}"
            ) from None
        answers = [
            {
                "host": target["labels"]["host"],
                "job": target["labels"]["job"],
                "address": target["labels"]["instance"],
                "state": target["health"],
                "error": target["lastError"],
            }
            for target in found
        ]
        return sorted(answers, key=lambda target: (target["host"], target["address"]))

    def _check_same_endpoints(self, endpoints: Endpoints) -> None:
        is_running = any(service.pid for service in self.services()[:2])
        if not is_running or self._read_endpoints() == endpoints:
            return
        raise ClusterError(
            f"monitoring is already up at another address: {self.services()[0].url}",
            hint="stop it first: python -m cluster.monitoring down",
        )

    def _read_endpoints(self) -> Endpoints:
        try:
            return Endpoints(**json.loads(self._endpoints_file.read_text()))
        except (OSError, ValueError, TypeError):
            return Endpoints()

    def _write(self, groups: list[dict[str, Any]], endpoints: Endpoints) -> None:
        self._endpoints_file.write_text(json.dumps(asdict(endpoints)) + "\n")
        for name in ("prometheus.yml", "rules.yml"):
            shutil.copyfile(HERE / name, self.folder / name)
        unfinished = self.folder / "targets.new"  # Prometheus may be reading targets.json
        unfinished.write_text(targets.render(groups))
        unfinished.rename(self.folder / "targets.json")

    def _prometheus_command(self, program: str, service: Service) -> list[str]:
        return [
            program,
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'prometheus'}",
            f"--storage.tsdb.retention.time={RETENTION}",
            f"--web.listen-address={service.url.removeprefix('http://')}",
            "--log.level=warn",
        ]

    def _start_grafana(self, service: Service, home: Path, prometheus: Service) -> None:
        folder = self.folder / "grafana"
        grafana.write_provisioning(folder / "provisioning", prometheus.url)
        if not self.password_file.exists():
            handle = os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w") as file:
                file.write(secrets.token_urlsafe(18))
        service.start(
            [str(home / "bin/grafana"), "server", "--homepath", str(home)],
            grafana.environment(folder, service.address, service.port, self.password_file),
        )


def _find_prometheus() -> str:
    program = shutil.which("prometheus")
    if program is None:
        raise ClusterError(
            "prometheus is not installed",
            hint="sudo apt install prometheus. Debian then starts a service that your whole network"
            " can reach, which is not needed here:"
            " sudo systemctl disable --now prometheus prometheus-node-exporter",
        )
    return program


def _is_free(service: Service) -> bool:
    """Whether the port is free; an exporter that already listens there is used as it is."""
    try:
        service.check_free()
    except ClusterError:
        return False
    return True
