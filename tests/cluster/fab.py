"""Runs `fab` as a user does, in cluster/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cluster.emulate.inventory import default_path
from tests.cluster.emulator import ENVIRONMENT, Emulator
from tests.support import REPOSITORY

FAB = Path(sys.executable).with_name("fab")


class Fab:
    """fab for one emulated cluster."""

    def __init__(self, emulator: Emulator, *, longest_seconds: float = 60) -> None:
        self.emulator = emulator
        self.inventory = default_path(emulator.name)
        self.results = REPOSITORY / "runs" / self.inventory.stem
        # some tasks start ansible-playbook, found as in an active environment
        path = f"{FAB.parent}:{ENVIRONMENT['PATH']}"
        inventory = str(self.inventory)
        self._environment = {**ENVIRONMENT, "PATH": path, "EDGEDDL_INVENTORY": inventory}
        self._longest_seconds = longest_seconds

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FAB, *words], cwd=REPOSITORY / "cluster", env=self._environment, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=self._longest_seconds,
            check=False,
        )  # fmt: skip

    def succeed(self, *words: str) -> str:
        done = self(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *words: str, terminal: int = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [FAB, *words], cwd=REPOSITORY / "cluster", env=self._environment, text=True,
            stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
