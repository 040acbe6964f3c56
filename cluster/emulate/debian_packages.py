"""Installs Debian's packages without starting the services in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from cluster.emulate.command import succeeds
from cluster.errors import ClusterError

# Debian asks this program whether a package may start its services.
POLICY = Path("/usr/sbin/policy-rc.d")
# Services that would also start at the next boot, and listen in all networks.
UNITS = {
    "openssh-server": ("ssh.service", "ssh.socket"),
    "prometheus": ("prometheus.service",),
    "prometheus-node-exporter": ("prometheus-node-exporter.service",),
}


def missing_packages(needed: Mapping[str, str]) -> list[str]:
    """The packages of the programs that are not installed; `needed` names them by program."""
    absent = (packages for program, packages in needed.items() if not shutil.which(program))
    return sorted({package for packages in absent for package in packages.split()})


def install(packages: list[str]) -> None:
    if not shutil.which("apt-get"):
        raise ClusterError(f"not installed: {', '.join(packages)}", hint="install them by hand")
    print(f"installing {', '.join(packages)}", flush=True)
    with _services_stay_off():
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *packages)
    for package in packages:
        for unit in UNITS.get(package, ()):
            succeeds("systemctl", "disable", unit)


@contextlib.contextmanager
def _services_stay_off() -> Iterator[None]:
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    patience = "DPkg::Lock::Timeout=300"  # seconds; another apt may be at work
    command = ["apt-get", "-qq", "-o", patience, *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        words = "; ".join(result.stderr.strip().splitlines()[-3:])
        raise ClusterError(f"apt-get {arguments[0]}: {words}", hint="install them by hand")
