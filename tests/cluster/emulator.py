"""Runs the emulator as a user does, and finds what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.emulate.inventory import default_path
from cluster.emulate.nat import FORWARDING, tables_left
from cluster.emulate.network import HYSTERESIS
from cluster.emulate.state import ROOT
from tests.support import REPOSITORY

COMMAND = (sys.executable, "-m", "cluster.emulate")
# as after sudo, without an active environment: nodes get Open MPI's variables from the
# environment's activate script
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}


@dataclass(frozen=True)
class Emulator:
    """One cluster with its own name and network."""

    name: str
    network: str

    def __call__(self, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=ENVIRONMENT, cwd=REPOSITORY, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def command(self, *words: str) -> list[str]:
        network = ("--network", self.network) if words[0] == "up" else ()
        return [*COMMAND, "--name", self.name, *words, *network]

    def succeed(self, *words: str, timeout: float = 60) -> str:
        """Run a command that must not fail; return its output."""
        done = self(*words, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def on(self, number: int, *command: str, timeout: float = 60) -> str:
        """Run a command on a node, which must not fail; return its output."""
        return self.succeed("exec", self.node(number), "--", *command, timeout=timeout)

    def node(self, number: int) -> str:
        return f"{self.name}-{number:02}"

    def states(self) -> list[str]:
        nodes: list[dict[str, Any]] = json.loads(self.succeed("status", "--json"))
        return [node["state"] for node in nodes]

    def leftovers(self) -> list[str]:
        """Return everything on this host that has the cluster's name."""
        return [
            *_named(Path("/run/netns"), f"{self.name}-*"),
            *_named(Path("/sys/class/net"), f"{self.name}-*"),
            *_named(Path("/sys/class/net"), f"br-{self.name}"),
            *_named(Path("/sys/fs/cgroup"), f"**/edgeddl-{self.name}"),
            *_named(ROOT, self.name),
            *(str(path) for path in [default_path(self.name)] if path.exists()),
            *(line for line in _mounts() if f"{ROOT}/{self.name}/" in line),
            *(table for table in tables_left() if table == f"edgeddl_{self.name}"),
            *([] if tables_left() else _named(Path("/run"), FORWARDING.marker.name)),
            *([] if any(ROOT.glob("*/")) else _named(Path("/run"), HYSTERESIS.marker.name)),
            *self._processes(),
        ]

    def _processes(self) -> Iterator[str]:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                groups = (folder / "cgroup").read_text()
            except OSError:  # it has ended
                continue
            is_ours = f"{ROOT}/{self.name}/" in command or f"/edgeddl-{self.name}/" in groups
            if is_ours and command:  # without a command line: a zombie
                yield f"{folder.name}: {command}"


def _named(folder: Path, pattern: str) -> list[str]:
    return [str(path) for path in folder.glob(pattern)]


def _mounts() -> list[str]:
    return Path("/proc/mounts").read_text().splitlines()
