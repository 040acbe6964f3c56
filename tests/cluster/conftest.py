"""A cluster of three light nodes for most tests, and unique names for other clusters."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from cluster.emulate.cgroups import find_hierarchy
from cluster.emulate.requirements import reason_not_to_run
from cluster.errors import ClusterError
from tests.cluster.emulator import Emulator

# derived from the PID: two test runs may share a machine
NUMBER = os.getpid() % 10_000
NEEDED = ("ip", "tc", "unshare", "nsenter", "ssh", "/usr/sbin/sshd")


def reason_to_skip() -> str | None:
    if reason := reason_not_to_run():
        return reason
    if missing := [program for program in NEEDED if not shutil.which(program)]:
        return f"not installed: {', '.join(missing)}"
    unshare = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "true"]
    if subprocess.run(unshare, capture_output=True, check=False).returncode:
        return "this kernel, or the container around, does not permit namespaces"
    try:
        roots = find_hierarchy().roots
    except ClusterError as error:
        return str(error)
    unwritable = [str(root) for root in roots if not os.access(root, os.W_OK)]
    return f"may not write to {', '.join(unwritable)}" if unwritable else None


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def three_nodes(_possible: None) -> Iterator[Emulator]:
    """A cluster that is up; its third node has lower limits."""
    emulator = Emulator(f"t{NUMBER}", f"10.213.{NUMBER % 250}.0/26")
    other = f"{emulator.node(3)}:cpu=0.5,rate=100,memory=512M"
    try:
        emulator.succeed("up", "--nodes", "3", "--cpu", "1", "--node", other)
        yield emulator
    finally:
        emulator("down")
    assert emulator.leftovers() == []


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """A cluster that is not up yet; after `down`, nothing may be left."""
    emulator = Emulator(f"u{NUMBER}", f"10.213.{NUMBER % 250}.64/26")
    yield emulator
    emulator("down")
    assert emulator.leftovers() == []
