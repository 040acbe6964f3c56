"""Launches commands on the first N nodes of an emulated cluster, or on this machine."""

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

GRACE_SECONDS = 10.0  # for ranks to stop gracefully
MPIRUN = str(Path(sys.executable).parent / "mpirun")


class NoCluster(Exception):
    """There are no nodes to run on; the message has a hint."""


class Launcher(Protocol):
    """Starts jobs with one rank per node.

    address: address of the first node, the rendezvous of DistributedDataParallel
    interface: network interface to the other nodes
    node_count: number of nodes; None if there is no limit
    """

    address: str
    interface: str
    node_count: int | None

    def link_mbit(self, nodes: int) -> float | None:
        """Return the rate of the slowest link of the first nodes; None without links."""

    def run(
        self, command: Sequence[str], nodes: int, timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on each of the first nodes; stdout contains all output."""

    def run_apart(
        self, commands: Sequence[Sequence[str]], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one command per node on the first nodes, independently of each other."""

    def describe(self) -> dict[str, Any]:
        """Describe the nodes, for the results file."""


class LocalLauncher:
    """Runs ranks on this machine, which share its cores, to try out the benchmark."""

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
    """Runs on the nodes of an emulated cluster that is up."""

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
        # the node's default hostfile lists all nodes with one slot each
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
            error = last_lines(status.stderr, 3).removeprefix("error: ")
            raise NoCluster(f"{error}\n  hint: to try this out without a cluster, use --local")
        nodes = json.loads(status.stdout)
        if bad := [node["spec"]["name"] for node in nodes if node["state"] != "up"]:
            hint = f"python -m cluster.emulate restore {bad[0]}"
            raise NoCluster(f"not up: {', '.join(bad)}\n  hint: {hint}")
        return [node["spec"] for node in nodes]


@contextlib.contextmanager
def cluster(name: str, nodes: int) -> Iterator[Launcher]:
    """Use the cluster of this name if it is up; otherwise create it and remove it afterwards."""
    emulate = [sys.executable, "-m", "cluster.emulate", "--name", name]
    if subprocess.run([*emulate, "status"], capture_output=True).returncode == 0:
        yield ClusterLauncher(name)
        return
    print(f"cluster {name!r} is not up: creating one with {nodes} nodes", flush=True)
    if _bring_up([*emulate, "up", "--nodes", str(nodes)]):
        raise NoCluster("no cluster to measure on; to try this out without one, use --local")
    try:
        yield ClusterLauncher(name)
    finally:
        # in its own session, so that a second Ctrl-C does not interrupt the removal
        subprocess.Popen([*emulate, "down"], start_new_session=True).wait()


def _bring_up(command: Sequence[str]) -> int:
    """Create the cluster and return the exit code; remove it if interrupted."""
    job = subprocess.Popen(command, start_new_session=True)
    try:
        return job.wait()
    except KeyboardInterrupt:
        job.terminate()
        job.wait()
        raise


def run_job(command: Sequence[str], timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command; leave no processes behind, even if interrupted."""
    job = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches only this process, which then ends the job
    )
    try:
        output, _ = job.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        output = f"{end_job(job)}\ntimed out after {timeout_seconds:g} s"
    except BaseException:
        end_job(job)
        raise
    return subprocess.CompletedProcess(command, job.returncode, output)


def run_at_once(
    commands: Sequence[Sequence[str]], timeout_seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run several commands in parallel as one job. Its exit code does not include theirs."""
    script = " & ".join(shlex.join(command) for command in commands)
    return run_job(["sh", "-c", f"{script} & wait"], timeout_seconds)


def end_job(job: subprocess.Popen[str]) -> str:
    """End a job and all its processes; return its output."""
    # the first signal asks the ranks to stop, the second ends them
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return job.communicate(timeout=GRACE_SECONDS)[0]
    return ""


def free_port() -> int:
    """Return a port that is free here, and most likely on the first node too."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def last_lines(text: str, count: int) -> str:
    """Return the end of a program's output."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])
