"""A node's process 1: starts it, finds it, and puts other processes under its limits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.emulate.cgroups import NodeCgroup
from cluster.emulate.network import namespace_path
from cluster.emulate.spec import ClusterSpec, NodeSpec
from cluster.errors import ClusterError


def start(
    command: Sequence[str],
    *,
    node: NodeSpec,
    spec: ClusterSpec,
    cgroup: NodeCgroup,
    folder: Path,
    variables: Mapping[str, str],
) -> None:
    """Start a command in the node's network namespace, under its limits; output goes to a log."""
    with (folder / "log").open("w") as log:
        subprocess.Popen(
            ["nsenter", f"--net={namespace_path(node.name)}", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(variables),
            start_new_session=True,
            preexec_fn=lambda: join(node, spec, cgroup),
        )


def join(node: NodeSpec, spec: ClusterSpec, cgroup: NodeCgroup) -> None:
    """Put this process under the node's limits.

    Its affinity is limited too, so that it chooses a number of threads that fits its CPU quota.
    """
    cgroup.enter(os.getpid())
    host = sorted(os.sched_getaffinity(0))
    wanted = min(node.whole_cores, len(host))
    first = spec.nodes.index(node)
    os.sched_setaffinity(0, {host[(first + i) % len(host)] for i in range(wanted)})


def find(pids: Sequence[int]) -> int:
    """Return the process that has PID 1 in its own PID namespace."""
    for pid in pids:
        numbers = _numbers(pid)
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
    raise ClusterError("the node is starting or stopping", hint="try again")


def _numbers(pid: int) -> list[str]:
    """Return the process's PIDs in all its namespaces, innermost last; none if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []
    return next(line.split()[1:] for line in lines if line.startswith("NSpid:"))
