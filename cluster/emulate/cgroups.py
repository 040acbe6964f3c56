"""A node's share of processor and memory, by cgroups of version 2 or 1."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

MOUNTS = Path("/proc/mounts")
# Short, so that a node that has used up its share waits for milliseconds, not for tenths of a
# second, and messages are answered in about the time a slower processor would take. With half of
# it, nodes that share a core find its cache taken so often that they compute 4 % slower.
PERIOD_MICROSECONDS = 10_000
# The kernel accepts no smaller quota.
SMALLEST_QUOTA_MICROSECONDS = 1_000


@dataclass(frozen=True)
class Hierarchy:
    """Where cgroups are made: version 2 has one tree, version 1 one for cpu, one for memory.

    Beside those of version 1 there may be trees that limit nothing, in which a node's systemd only
    keeps account of its processes.
    """

    version: int
    roots: tuple[Path, ...]


def find_hierarchy(mounts: Path = MOUNTS) -> Hierarchy:
    """The mounted cgroup trees that limit processor and memory."""
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
        raise ClusterError("no cgroups for cpu and memory are mounted on this machine")
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
        # What else the host does shall not take from nodes what a board has to itself.
        name, largest = {1: ("cpu.shares", 262_144), 2: ("cpu.weight", 10_000)}[self._version]
        (self._parents[0] / name).write_text(f"{largest}")

    def set_cores(self, cores: float) -> None:
        quota = max(round(cores * PERIOD_MICROSECONDS), SMALLEST_QUOTA_MICROSECONDS)
        period = round(quota / cores)
        burst = self._cpu / {1: "cpu.cfs_burst_us", 2: "cpu.max.burst"}[self._version]
        if burst.exists():  # not in kernels before 5.14
            burst.write_text("0")  # any quota goes with no burst
        if self._version == 2:
            (self._cpu / "cpu.max").write_text(f"{quota} {period}")
        else:
            (self._cpu / "cpu.cfs_quota_us").write_text("-1")  # any period goes with no quota
            (self._cpu / "cpu.cfs_period_us").write_text(f"{period}")
            (self._cpu / "cpu.cfs_quota_us").write_text(f"{quota}")
        # What a node could not use in one period, because others had the core, it may use in the
        # next. Without this, four nodes of 0.35 on two cores got 0.32, one always the least.
        if burst.exists():
            burst.write_text(f"{quota}")

    def set_memory(self, size_bytes: int) -> None:
        """A limit without swap: a board has none."""
        names = {1: ("limit_in_bytes", "swappiness"), 2: ("max", "swap.max")}
        limit, swap = (self._memory / f"memory.{name}" for name in names[self._version])
        limit.write_text(f"{size_bytes}")
        if swap.exists():  # not in every kernel
            swap.write_text("0")

    def enter(self, pid: int) -> None:
        for folder in self._folders:
            # beside the cgroup that systemd-nspawn has made for a machine: only leaves may have
            # processes
            leaf = folder / "supervisor" if (folder / "supervisor").exists() else folder
            (leaf / "cgroup.procs").write_text(f"{pid}")

    def processes(self) -> list[int]:
        """Of this cgroup and those that a node's systemd makes below it."""
        pids: set[int] = set()
        for folder in self._folders:
            for path, *_ in os.walk(folder):
                with contextlib.suppress(OSError):  # the cgroup has just ended
                    pids |= {int(pid) for pid in Path(path, "cgroup.procs").read_text().split()}
        return sorted(pids)

    def memory_bytes(self) -> int:
        name = "memory.current" if self._version == 2 else "memory.usage_in_bytes"
        return int((self._memory / name).read_text())

    def throttled(self) -> float:
        """The part of all periods in which the node has used up its share."""
        lines = (self._cpu / "cpu.stat").read_text().splitlines()
        counts = {name: int(value) for name, value in (line.split() for line in lines)}
        return counts["nr_throttled"] / counts["nr_periods"] if counts["nr_periods"] else 0.0

    def remove(self) -> None:
        for parent, folder in zip(self._parents, self._folders, strict=True):
            for path, *_ in os.walk(folder, topdown=False):
                os.rmdir(path)
            with contextlib.suppress(OSError):  # other nodes are still there
                parent.rmdir()


def nodes_left(hierarchy: Hierarchy, cluster: str) -> list[str]:
    """Names of nodes that have a cgroup."""
    parents = [root / f"edgeddl-{cluster}" for root in hierarchy.roots]
    return sorted({path.name for parent in parents for path in parent.glob("*/")})


def kill_all(pids: list[int]) -> None:
    """End processes at once; returns when they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(_is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes {pids} do not end")
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    """Also a process that has ended, but whose parent has not looked yet, is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
