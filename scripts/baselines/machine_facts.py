"""Describes the machine and the software versions of a measurement."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from baselines.torch_environment import torch_version
from edgeddl import machine


def describe_machine(torch_python: Path | None) -> dict[str, Any]:
    """Return facts about this machine, and the versions of all systems."""
    versions = machine.versions() | {"blas": machine.blas_name()}
    if torch_python:
        versions["torch"] = torch_version(torch_python)
    return {
        "machine": {
            "cpu": machine.cpu_name(),
            "cores": machine.available_cores(),
            "architecture": platform.machine(),
            "kernel": platform.release(),
        },
        "versions": versions,
    }
