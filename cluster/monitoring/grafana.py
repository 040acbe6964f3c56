"""Grafana's configuration: data source, dashboards, address and access.

It consists of provisioning files and environment variables, so the package's own configuration
file stays unchanged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster.monitoring.dashboard_json import DATASOURCE

DASHBOARDS = Path(__file__).with_name("dashboards")
FOLDER = "edgeddl"
# Grafana also reads these and logs an error if they do not exist.
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
                # the scrape interval in prometheus.yml; $__rate_interval is derived from it
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
    """Return the files by provisioning folder."""
    return {"datasources": datasource(prometheus_url), "dashboards": dashboards(folder)}


def write_provisioning(folder: Path, prometheus_url: str) -> None:
    for kind in EMPTY_FOLDERS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for kind, content in provisioning(prometheus_url).items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind / "edgeddl.yml").write_text(json.dumps(content, indent=1) + "\n")  # is YAML


def environment(folder: Path, address: str, port: int, password_file: Path) -> dict[str, str]:
    """Return the settings of a Grafana that keeps all its files in `folder`."""
    return {
        "GF_SERVER_HTTP_ADDR": address,
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str(folder / "data"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_PATHS_PLUGINS": str(folder / "plugins"),
        "GF_PATHS_PROVISIONING": str(folder / "provisioning"),
        "GF_SECURITY_ADMIN_PASSWORD": f"$__file{{{password_file}}}",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(DASHBOARDS / "cluster.json"),
        # no connections to grafana.com
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_USERS_ALLOW_SIGN_UP": "false",
    }
