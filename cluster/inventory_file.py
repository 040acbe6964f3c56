"""The one file that Ansible, Fabric and the launcher read: hosts, addresses, network, head."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("inventory")


def render_inventory(
    hosts: Mapping[str, Mapping[str, Any]], variables: Mapping[str, Any], comment: str
) -> str:
    """An Ansible inventory in YAML. Values are written as JSON, which YAML contains."""
    lines = [f"# {comment}", "cluster:", "  hosts:"]
    for host, settings in hosts.items():
        lines.append(f"    {host}:")
        lines += [f"      {key}: {json.dumps(value)}" for key, value in settings.items()]
    lines.append("  vars:")
    lines += [f"    {key}: {json.dumps(value)}" for key, value in variables.items()]
    return "\n".join(lines) + "\n"
