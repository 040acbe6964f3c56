"""Network settings of this host (DNS, mirrors, proxies, certificates), copied to machines."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from cluster.emulate.host_command import run

ROOT = Path("/")
MIRROR = "http://deb.debian.org/debian"
APT_SOURCES = ("etc/apt/sources.list", "etc/apt/sources.list.d/*")
# copied unchanged: settings of pip, and certificate authorities
COPIED = (
    "etc/pip.conf",
    "root/.config/pip/pip.conf",
    "root/.pip/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
    "usr/local/share/ca-certificates/**/*.crt",
)


def machine_files(suite: str, root: Path = ROOT) -> dict[str, str]:
    """Return files by path in the machine: DNS, package sources, proxies, pip settings, CAs."""
    files = {
        "etc/resolv.conf": _resolv_conf(root),
        "etc/apt/sources.list": render_sources(suite, *debian_mirrors(root)),
        "etc/apt/apt.conf.d/90host": _apt_settings(),
    }
    for path in _found(root, COPIED):
        files[str(path.relative_to(root))] = path.read_text()
    return files


def render_sources(suite: str, mirror: str, security_mirror: str) -> str:
    return (
        f"deb {mirror} {suite} main\n"
        f"deb {mirror} {suite}-updates main\n"
        f"deb {security_mirror} {suite}-security main\n"
    )


def debian_mirrors(root: Path = ROOT) -> tuple[str, str]:
    """Return the mirrors of Debian and of its security updates that this host uses."""
    lines = [
        line
        for path in _found(root, APT_SOURCES)
        for line in path.read_text().splitlines()
        if not line.lstrip().startswith("#")
    ]
    found = [_first_address(lines, name) for name in ("debian", "debian-security")]
    return found[0] or MIRROR, found[1] or f"{found[0] or MIRROR}-security"


def _first_address(lines: Iterable[str], folder: str) -> str | None:
    pattern = re.compile(rf"\bhttps?://\S+/{folder}(?=/?(\s|$))")
    return next((match.group() for line in lines if (match := pattern.search(line))), None)


def _resolv_conf(root: Path) -> str:
    """Prefer systemd's upstream servers: its stub resolver listens on the host's loopback."""
    candidates = ("run/systemd/resolve/resolv.conf", "etc/resolv.conf")
    return next((path.read_text() for path in _found(root, candidates)), "")


def _apt_settings() -> str:
    """Return apt's download settings, such as proxies."""
    if not shutil.which("apt-config"):
        return ""
    lines = run("apt-config", "dump", "--no-empty").splitlines(keepends=True)
    return "".join(line for line in lines if re.match(r"Acquire::https?::", line))


def _found(root: Path, patterns: Iterable[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(path for path in root.glob(pattern) if path.is_file())
