"""Runs tools of the host; a failure is a ClusterError with the end of the tool's output."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from cluster.errors import ClusterError


def run(*command: str, stdin: str | None = None) -> str:
    """Run a command and return its stdout."""
    result = _start(command, stdin)
    if result.returncode:
        output = (result.stderr.strip() or result.stdout.strip()).splitlines()[-3:]
        reason = "; ".join(output) or f"exit code {result.returncode}"
        raise ClusterError(f"{' '.join(command)}: {reason}")
    return result.stdout


def succeeds(*command: str) -> bool:
    """Run a command that may fail, such as the removal of a link that may not exist."""
    return bool(shutil.which(command[0])) and _start(command, None).returncode == 0


def _start(command: Sequence[str], stdin: str | None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ClusterError(f"{command[0]} is not installed") from None
