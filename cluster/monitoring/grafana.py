"""Grafana's settings: the data source, the dashboards, where it listens, whom it lets in.

By files and environment variables, so that its own settings file stays as its package brings it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster.monitoring.dashboard_json import DATASOURCE

DASHBOARDS = Path(__file__).with_name("dashboards")
FOLDER = "edgeddl"
# Grafana looks into these as well, and logs an error if they do not exist.
EMPTY_FOLDERS = ("alerting", "notifiers", "plugins")


def datasource(prometheus_url: str) -> dict[str, Any]:
    return {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "edgeddl",
                **DATASOURCE,
                "access": "proxy",
                "url": prometheus_url,
                "isDefault": True,
                "editable": False,
                # as prometheus.yml asks: rates are taken over several of them
                "jsonData": {"timeInterval": "5s", "httpMethod": "POST"},
            }
        ],
    }


def dashboards(folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": 1,
        "providers": [
            {
                "name": FOLDER,
                "folder": FOLDER,
                "type": "file",
                "allowUiUpdates": False,
                "options": {"path": str(folder)},
            }
        ],
    }


def provisioning(prometheus_url: str, folder: Path = DASHBOARDS) -> dict[str, Any]:
    """By the folder of Grafana's provisioning that each is for."""
    return {"datasources": datasource(prometheus_url), "dashboards": dashboards(folder)}


def write_provisioning(folder: Path, prometheus_url: str) -> None:
    for kind in EMPTY_FOLDERS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for kind, content in provisioning(prometheus_url).items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind / "edgeddl.yml").write_text(json.dumps(content, indent=1) + "\n")  # is YAML


def environment(folder: Path, address: str, port: int, password_file: Path) -> dict[str, str]:
    """Settings of a Grafana whose files are all in `folder`."""
    return {
        "GF_SERVER_HTTP_ADDR": address,
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str(folder / "data"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_PATHS_PLUGINS": str(folder / "plugins"),
        "GF_PATHS_PROVISIONING": str(folder / "provisioning"),
        "GF_SECURITY_ADMIN_PASSWORD": f"$__file{{{password_file}}}",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(DASHBOARDS / "cluster.json"),
        # It asks nobody outside.
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_USERS_ALLOW_SIGN_UP": "false",
    }
