"""What the emulator requires of the host: Linux, root and some Debian packages."""

from __future__ import annotations

import os
import sys

from cluster.emulate.debian_packages import install, missing_packages
from cluster.emulate.rootfs import EMULATOR, host_arch
from cluster.errors import ClusterError

PACKAGES = {  # program: its package
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


def reason_not_to_run() -> str | None:
    """Return why an emulated cluster cannot run here, or None."""
    if sys.platform != "linux":
        return "an emulated cluster needs Linux: it uses kernel namespaces"
    if os.geteuid() != 0:
        return "an emulated cluster needs root to create namespaces, links and cgroups"
    return None


def check_host() -> None:
    if reason := reason_not_to_run():
        hint = 'sudo env PATH="$PATH" python -m cluster.emulate ...' if "root" in reason else ""
        raise ClusterError(reason, hint=hint)


def install_tools(kind: str, arch: str) -> None:
    """Install the Debian packages of missing tools."""
    needed = PACKAGES | (MACHINE_PACKAGES if kind == "machine" else {})
    if kind == "machine" and arch != host_arch():
        needed |= EMULATOR_PACKAGES
    if missing := missing_packages(needed):
        install(missing)
