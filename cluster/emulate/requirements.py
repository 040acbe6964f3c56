"""What the emulator needs of the host: Linux, root, and a few of Debian's packages."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster.emulate.command import succeeds
from cluster.emulate.roots import EMULATOR, host_arch
from cluster.errors import ClusterError

PACKAGES = {  # program: the package that brings it
    "ip": "iproute2",
    "tc": "iproute2",
    "ssh": "openssh-client",
    "/usr/sbin/sshd": "openssh-server",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
MACHINE_PACKAGES = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "nft": "nftables",
}
EMULATOR_PACKAGES = {EMULATOR: "qemu-user-static"}
# Debian asks this program whether a package may start its services.
POLICY = Path("/usr/sbin/policy-rc.d")


def reason_not_to_run() -> str | None:
    """Why there can be no emulated cluster here, or None."""
    if sys.platform != "linux":
        return "an emulated cluster needs Linux: it is made of the kernel's namespaces"
    if os.geteuid() != 0:
        return "an emulated cluster needs root: for namespaces, links and cgroups"
    return None


def check_host() -> None:
    if reason := reason_not_to_run():
        hint = 'sudo env PATH="$PATH" python -m cluster.emulate ...' if "root" in reason else ""
        raise ClusterError(reason, hint=hint)


def install_tools(kind: str, arch: str) -> None:
    """Install Debian's packages for whatever is not there."""
    needed = PACKAGES | (MACHINE_PACKAGES if kind == "machine" else {})
    if kind == "machine" and arch != host_arch():
        needed |= EMULATOR_PACKAGES
    missing = sorted({package for program, package in needed.items() if not shutil.which(program)})
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise ClusterError(f"needed are {', '.join(missing)}", hint="install what brings them")
    print(f"installing {', '.join(missing)}")
    with _services_stay_off():
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *missing)
    if "openssh-server" in missing:  # for the nodes; the host's own is nobody's wish
        succeeds("systemctl", "disable", "ssh.service", "ssh.socket")


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
    result = subprocess.run(
        ["apt-get", "-qq", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        words = "; ".join(result.stderr.strip().splitlines()[-3:])
        raise ClusterError(f"apt-get {arguments[0]}: {words}", hint="install them by hand")
