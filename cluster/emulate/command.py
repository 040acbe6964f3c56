"""Runs the system's own tools; a failure is a ClusterError with the tool's last words."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from cluster.errors import ClusterError


def run(*command: str, stdin: str | None = None) -> str:
    """Run to the end; returns what it printed."""
    result = _start(command, stdin)
    if result.returncode:
        words = (result.stderr.strip() or result.stdout.strip()).splitlines()[-3:]
        raise ClusterError(f"{' '.join(command)}: {'; '.join(words) or result.returncode}")
    return result.stdout


def succeeds(*command: str) -> bool:
    """Run something that may fail, such as the removal of what may not be there."""
    return bool(shutil.which(command[0])) and _start(command, None).returncode == 0


def _start(command: Sequence[str], stdin: str | None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ClusterError(f"{command[0]} is not installed") from None
