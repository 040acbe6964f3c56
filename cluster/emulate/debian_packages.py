"""Installs Debian packages without starting their services."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from cluster.emulate.host_command import succeeds
from cluster.errors import ClusterError

# Package scripts run this program to ask whether they may start services.
POLICY = Path("/usr/sbin/policy-rc.d")
# Services that would start at the next boot and listen on all networks.
UNITS = {
    "openssh-server": ("ssh.service", "ssh.socket"),
    "prometheus": ("prometheus.service",),
    "prometheus-node-exporter": ("prometheus-node-exporter.service",),
}


def missing_packages(needed: Mapping[str, str]) -> list[str]:
    """Return the packages of missing programs; `needed` maps a program to its packages."""
    absent = (packages for program, packages in needed.items() if not shutil.which(program))
    return sorted({package for packages in absent for package in packages.split()})


def install(packages: list[str]) -> None:
    if not shutil.which("apt-get"):
        raise ClusterError(
            f"not installed: {', '.join(packages)}", hint="install them manually: no apt-get here"
        )
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
    lock_timeout = "DPkg::Lock::Timeout=300"  # seconds; another apt may be running
    command = ["apt-get", "-qq", "-o", lock_timeout, *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        output = "; ".join(result.stderr.strip().splitlines()[-3:])
        raise ClusterError(f"apt-get {arguments[0]}: {output}", hint="install them manually")
