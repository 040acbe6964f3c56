"""CPU and memory limits of a node, by cgroups of version 2 or 1."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

MOUNTS = Path("/proc/mounts")
# Short, so that a throttled node waits for milliseconds instead of tenths of a second, and answers
# messages in about the time a slower processor would take. With half this period, nodes that share
# a core evict each other's cache so often that they compute 4 % slower.
PERIOD_MICROSECONDS = 10_000
# the smallest quota that the kernel accepts
SMALLEST_QUOTA_MICROSECONDS = 1_000


@dataclass(frozen=True)
class Hierarchy:
    """The mounted cgroup trees: one in version 2, one each for cpu and memory in version 1.

    In version 1 there may be further trees without limits, which a node's systemd uses only to
    track its processes.
    """

    version: int
    roots: tuple[Path, ...]


def find_hierarchy(mounts: Path = MOUNTS) -> Hierarchy:
    """Find the mounted cgroup trees that limit CPU and memory."""
    limits: dict[str, Path] = {}
    accounts = []
    for line in mounts.read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup2":
            if _has_controllers(Path(folder)):
                return Hierarchy(2, (Path(folder),))
            accounts.append(Path(folder))
        elif kind == "cgroup":
            names = options.split(",")
            limits |= {name: Path(folder) for name in names if name in ("cpu", "memory")}
            accounts += [Path(folder)] if "name=systemd" in names else []
    if limits.keys() != {"cpu", "memory"}:
        raise ClusterError("this machine has no mounted cgroups for cpu and memory")
    return Hierarchy(1, (limits["cpu"], limits["memory"], *accounts))


def _has_controllers(root: Path) -> bool:
    available = (root / "cgroup.controllers").read_text().split()
    return {"cpu", "memory"} <= set(available)


class NodeCgroup:
    """The cgroup of one node of one cluster."""

    def __init__(self, hierarchy: Hierarchy, cluster: str, node: str) -> None:
        self._version = hierarchy.version
        self._parents = [root / f"edgeddl-{cluster}" for root in hierarchy.roots]
        self._folders = [parent / node for parent in self._parents]
        self._cpu = self._folders[0]
        self._memory = self._folders[1 if self._version == 1 else 0]

    def exists(self) -> bool:
        return all(folder.is_dir() for folder in self._folders)

    def make(self) -> None:
        for parent, folder in zip(self._parents, self._folders, strict=True):
            folder.mkdir(parents=True, exist_ok=True)
            if self._version == 2:
                for level in (parent.parent, parent):
                    (level / "cgroup.subtree_control").write_text("+cpu +memory")
        # Other processes of the host must not take CPU time from nodes: a board has its own.
        name, largest = {1: ("cpu.shares", 262_144), 2: ("cpu.weight", 10_000)}[self._version]
        (self._parents[0] / name).write_text(f"{largest}")

    def set_cores(self, cores: float) -> None:
        quota = max(round(cores * PERIOD_MICROSECONDS), SMALLEST_QUOTA_MICROSECONDS)
        period = round(quota / cores)
        burst = self._cpu / {1: "cpu.cfs_burst_us", 2: "cpu.max.burst"}[self._version]
        if burst.exists():  # not in kernels before 5.14
            burst.write_text("0")  # without a burst, any quota is valid
        if self._version == 2:
            (self._cpu / "cpu.max").write_text(f"{quota} {period}")
        else:
            (self._cpu / "cpu.cfs_quota_us").write_text("-1")  # without one, any period is valid
            (self._cpu / "cpu.cfs_period_us").write_text(f"{period}")
            (self._cpu / "cpu.cfs_quota_us").write_text(f"{quota}")
        # A node may use in the next period what it could not use in this one because others had
        # the core. Without this, four nodes of 0.35 on two cores got 0.32, one always the least.
        if burst.exists():
            burst.write_text(f"{quota}")

    def set_memory(self, size_bytes: int) -> None:
        """Limit the memory, without swap: a board has none."""
        names = {1: ("limit_in_bytes", "swappiness"), 2: ("max", "swap.max")}
        limit, swap = (self._memory / f"memory.{name}" for name in names[self._version])
        limit.write_text(f"{size_bytes}")
        if swap.exists():  # not in every kernel
            swap.write_text("0")

    def enter(self, pid: int) -> None:
        for folder in self._folders:
            # Only leaf cgroups may contain processes, and systemd-nspawn creates children.
            leaf = folder / "supervisor" if (folder / "supervisor").exists() else folder
            (leaf / "cgroup.procs").write_text(f"{pid}")

    def processes(self) -> list[int]:
        """Return the processes of this cgroup and of those that a node's systemd makes below it."""
        pids: set[int] = set()
        for folder in self._folders:
            for path, *_ in os.walk(folder):
                with contextlib.suppress(OSError):  # the cgroup was just removed
                    pids |= {int(pid) for pid in Path(path, "cgroup.procs").read_text().split()}
        return sorted(pids)

    def memory_bytes(self) -> int:
        name = "memory.current" if self._version == 2 else "memory.usage_in_bytes"
        return int((self._memory / name).read_text())

    def throttled(self) -> float:
        """Return the fraction of periods in which the node used up its quota."""
        lines = (self._cpu / "cpu.stat").read_text().splitlines()
        counts = {name: int(value) for name, value in (line.split() for line in lines)}
        return counts["nr_throttled"] / counts["nr_periods"] if counts["nr_periods"] else 0.0

    def remove(self) -> None:
        for parent, folder in zip(self._parents, self._folders, strict=True):
            for path, *_ in os.walk(folder, topdown=False):
                os.rmdir(path)
            with contextlib.suppress(OSError):  # not empty: there are other nodes
                parent.rmdir()


def nodes_left(hierarchy: Hierarchy, cluster: str) -> list[str]:
    """Return the names of nodes that have a cgroup."""
    parents = [root / f"edgeddl-{cluster}" for root in hierarchy.roots]
    return sorted({path.name for parent in parents for path in parent.glob("*/")})


def kill_all(pids: list[int]) -> None:
    """Kill processes and wait until they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(_is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes {pids} did not end within 10 s of SIGKILL")
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    """Whether a process runs; zombies do not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
