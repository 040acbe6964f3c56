"""How a command is started on the first N nodes: of the emulated cluster, or of none."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

GRACE_SECONDS = 10.0  # for ranks to end in good order
MPIRUN = str(Path(sys.executable).parent / "mpirun")


class NoCluster(Exception):
    """There are no nodes to run on; the message says how to get some."""


class Launcher(Protocol):
    """Starts jobs, one rank a node.

    address: of the first node, where DistributedDataParallel's ranks meet.
    interface: the network card that leads to the other nodes.
    node_count: how many there are; None where any number can be started.
    """

    address: str
    interface: str
    node_count: int | None

    def link_mbit(self, nodes: int) -> float | None:
        """What the slowest link of the first nodes carries each way; None: they are not apart."""

    def run(
        self, command: Sequence[str], nodes: int, timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """The command on each of the first nodes, to its end; stdout has all output."""

    def run_apart(
        self, commands: Sequence[Sequence[str]], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """A command for each of the first nodes, which know nothing of each other."""

    def describe(self) -> dict[str, Any]:
        """The nodes, for the record."""


class LocalLauncher:
    """Ranks on this machine, which share its cores: to try the benchmark out."""

    address = "127.0.0.1"
    interface = "lo"
    node_count: int | None = None

    def link_mbit(self, nodes: int) -> float | None:
        return None

    def run(
        self, command: Sequence[str], nodes: int, timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        return run_job([MPIRUN, "-np", str(nodes), *command], timeout_seconds)

    def run_apart(
        self, commands: Sequence[Sequence[str]], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        return run_at_once(
            [[MPIRUN, "-np", "1", *command] for command in commands], timeout_seconds
        )

    def describe(self) -> dict[str, Any]:
        return {"kind": "local", "nodes": []}


class ClusterLauncher:
    """Nodes of a cluster that `python -m cluster.emulate up` has made."""

    interface = "eth0"

    def __init__(self, name: str) -> None:
        self._emulate = [sys.executable, "-m", "cluster.emulate", "--name", name]
        self._nodes = self._find_nodes()
        self.address: str = self._nodes[0]["address"]
        self.node_count: int | None = len(self._nodes)

    def link_mbit(self, nodes: int) -> float | None:
        return min(float(node["rate_mbit"]) for node in self._nodes[:nodes])

    def run(
        self, command: Sequence[str], nodes: int, timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        first = self._nodes[0]["name"]
        # its default hostfile names all nodes, with one slot each
        mpirun = ["mpirun", "-np", str(nodes), *command]
        return run_job([*self._emulate, "exec", first, "--", *mpirun], timeout_seconds)

    def run_apart(
        self, commands: Sequence[Sequence[str]], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        names = [node["name"] for node in self._nodes]
        jobs = [
            [*self._emulate, "exec", name, "--", "mpirun", "-np", "1", "--host", name, *command]
            for name, command in zip(names, commands, strict=False)  # the first of them
        ]
        return run_at_once(jobs, timeout_seconds)

    def describe(self) -> dict[str, Any]:
        return {"kind": "emulated", "nodes": self._nodes}

    def _find_nodes(self) -> list[dict[str, Any]]:
        status = subprocess.run(
            [*self._emulate, "status", "--json"], capture_output=True, text=True
        )
        if status.returncode:
            complaint = last_lines(status.stderr, 3).removeprefix("error: ")
            raise NoCluster(f"{complaint}\n  hint: without a cluster, --local tries this out")
        nodes = json.loads(status.stdout)
        if bad := [node["spec"]["name"] for node in nodes if node["state"] != "up"]:
            hint = f"python -m cluster.emulate restore {bad[0]}"
            raise NoCluster(f"{', '.join(bad)}: not up\n  hint: {hint}")
        return [node["spec"] for node in nodes]


@contextlib.contextmanager
def cluster(name: str, nodes: int) -> Iterator[Launcher]:
    """The cluster of this name that is up; else one that is made now, and gone afterwards."""
    emulate = [sys.executable, "-m", "cluster.emulate", "--name", name]
    if subprocess.run([*emulate, "status"], capture_output=True).returncode == 0:
        yield ClusterLauncher(name)
        return
    print(f"no cluster {name!r} is up: making one of {nodes} nodes", flush=True)
    if _bring_up([*emulate, "up", "--nodes", str(nodes)]):
        raise NoCluster("there is no cluster to measure on; --local tries this out without one")
    try:
        yield ClusterLauncher(name)
    finally:
        # in a session of its own: a second Ctrl-C leaves nothing half taken away
        subprocess.Popen([*emulate, "down"], start_new_session=True).wait()


def _bring_up(command: Sequence[str]) -> int:
    """The exit code; interrupted, it takes back what it has made."""
    job = subprocess.Popen(command, start_new_session=True)
    try:
        return job.wait()
    except KeyboardInterrupt:
        job.terminate()
        job.wait()
        raise


def run_job(command: Sequence[str], timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; nothing of it is left, also when this is interrupted."""
    job = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for us: we then end the job
    )
    try:
        output, _ = job.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        output = f"{end_job(job)}\nnot ended after {timeout_seconds:g} s"
    except BaseException:
        end_job(job)
        raise
    return subprocess.CompletedProcess(command, job.returncode, output)


def run_at_once(
    commands: Sequence[Sequence[str]], timeout_seconds: float
) -> subprocess.CompletedProcess[str]:
    """Several commands as one job. Its exit code says nothing of theirs."""
    script = " & ".join(shlex.join(command) for command in commands)
    return run_job(["sh", "-c", f"{script} & wait"], timeout_seconds)


def end_job(job: subprocess.Popen[str]) -> str:
    """End a job and all its processes; what it has said."""
    # mpirun takes the first signal for a request to the ranks, the second ends them
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return job.communicate(timeout=GRACE_SECONDS)[0]
    return ""


def free_port() -> int:
    """A port nobody listens on, here and most likely on the first node."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def last_lines(text: str, count: int) -> str:
    """The end of what a program has said."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])
