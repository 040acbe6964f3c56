"""Connection settings from ssh itself, so that Fabric connects the way Ansible does."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError
from cluster.inventory_file import Host

CONNECT_SECONDS = 10


@dataclass(frozen=True)
class SshSettings:
    """The settings of `ssh -G` that are used here."""

    host: str
    port: int
    user: str
    keys: tuple[str, ...]
    known_hosts: tuple[str, ...]
    use_agent: bool
    connect_seconds: int
    proxy: str | None


def find_settings(host: Host) -> SshSettings:
    """Combine Ansible's inventory variables and the user's ssh configuration."""
    command = ssh_command(host)
    try:
        done = subprocess.run(
            ["ssh", "-G", *command[1:]],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise ClusterError("ssh is not installed", hint="apt install openssh-client") from None
    if done.returncode:
        last_line = "".join(done.stderr.strip().splitlines()[-1:])
        raise ClusterError(f"{shlex.join(command)}: {last_line}")
    return parse_settings(done.stdout)


def ssh_command(host: Host) -> list[str]:
    """Return the ssh command line that logs in to the host."""
    given = host.variables
    command = ["ssh"]
    for name in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        command += shlex.split(str(given.get(name, "")))
    if "ansible_ssh_private_key_file" in given:
        command += ["-i", str(Path(given["ansible_ssh_private_key_file"]).expanduser())]
    if "ansible_port" in given:
        command += ["-p", str(given["ansible_port"])]
    return [*command, "-l", str(given["ansible_user"]), host.address]


def parse_settings(text: str) -> SshSettings:
    """Parse the output of `ssh -G`: one setting per line, some of them repeated."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    first = {name: values[0] for name, values in found.items()}
    known = f"{first.get('userknownhostsfile', '')} {first.get('globalknownhostsfile', '')}"
    seconds = first.get("connecttimeout", "none")
    return SshSettings(
        host=first["hostname"],
        port=int(first["port"]),
        user=first["user"],
        keys=_existing(found.get("identityfile", [])),
        known_hosts=_existing(known.split()),
        use_agent=first.get("identitiesonly") != "yes",
        connect_seconds=int(seconds) if seconds.isdigit() else CONNECT_SECONDS,
        proxy=_proxy(first),
    )


def _existing(names: Iterable[str]) -> tuple[str, ...]:
    paths = [Path(name).expanduser() for name in names]
    return tuple(str(path) for path in paths if path.is_file())


def _proxy(first: dict[str, str]) -> str | None:
    """Return the proxy command through which to connect, if there is one."""
    if command := first.get("proxycommand"):
        return command
    jumps, _, last = first.get("proxyjump", "").rpartition(",")
    before = f"-J {jumps} " if jumps else ""
    return f"ssh {before}-W %h:%p {last}" if last else None
