"""Runs playbooks as a user does, in ansible/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import REPOSITORY

ANSIBLE = REPOSITORY / "ansible"
PLAYBOOKS = sorted((ANSIBLE / "playbooks").glob("*.yml"))
ROLES = sorted(path for path in (ANSIBLE / "roles").iterdir() if path.is_dir())
PROGRAM = Path(sys.executable).with_name("ansible-playbook")
RECAP = re.compile(r"^(\S+)\s+: (ok=.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the numbers of tasks by host: ok, changed, failed, ..."""
        return {
            host: {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", words)}
            for host, words in RECAP.findall(self.output)
        }

    def total(self, name: str) -> int:
        return sum(counts[name] for counts in self.counts().values())


def play(
    *playbooks: Path,
    inventory: Path | str,
    words: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    extra = [word for item in (variables or {}).items() for word in ("-e", "=".join(item))]
    done = subprocess.run(
        [PROGRAM, "-i", inventory, *extra, *words, *playbooks],
        cwd=ANSIBLE,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_NOCOWS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout + done.stderr)


def site(name: str) -> Path:
    return ANSIBLE / "playbooks" / f"{name}.yml"
