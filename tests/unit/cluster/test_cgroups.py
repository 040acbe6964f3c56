"""cgroup limits, written to file trees that look like the kernel's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.emulate.cgroups import Hierarchy, NodeCgroup, find_hierarchy, nodes_left
from cluster.errors import ClusterError


def mounts(folder: Path, lines: Sequence[str]) -> Path:
    path = folder / "mounts"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def tree(folder: Path, controllers: str) -> Path:
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(controllers)
    return folder


def version_1(folder: Path) -> Hierarchy:
    roots = tuple(folder / name for name in ("cpu", "memory", "unified"))
    for root in roots:
        root.mkdir()
    return Hierarchy(1, roots)


def test_version_2_is_found_if_it_has_controllers(tmp_path: Path) -> None:
    root = tree(tmp_path / "cgroup", "cpuset cpu io memory pids\n")
    lines = ["proc /proc proc rw 0 0", f"cgroup2 {root} cgroup2 rw,nosuid 0 0"]
    assert find_hierarchy(mounts(tmp_path, lines)) == Hierarchy(2, (root,))


def test_version_1_includes_trees_without_limits(tmp_path: Path) -> None:
    unified = tree(tmp_path / "unified", "")
    lines = [
        "cgroup /g/memory cgroup rw,memory 0 0",
        "cgroup /g/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0",
        "cgroup /g/cpuset cgroup rw,cpuset 0 0",
        "cgroup /g/systemd cgroup rw,name=systemd 0 0",
        f"cgroup2 {unified} cgroup2 rw 0 0",
    ]
    roots = ("/g/cpu,cpuacct", "/g/memory", "/g/systemd", str(unified))
    assert find_hierarchy(mounts(tmp_path, lines)) == Hierarchy(1, tuple(map(Path, roots)))


def test_missing_cgroups_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no mounted cgroups"):
        find_hierarchy(mounts(tmp_path, ["cgroup /g/cpu cgroup rw,cpu 0 0"]))


def test_limits_of_version_1(tmp_path: Path) -> None:
    cgroup = NodeCgroup(version_1(tmp_path), "pi", "pi-01")
    cgroup.make()
    cpu, memory = (tmp_path / name / "edgeddl-pi" / "pi-01" for name in ("cpu", "memory"))
    (memory / "memory.swappiness").touch()
    (cpu / "cpu.cfs_burst_us").touch()
    cgroup.set_cores(0.35)
    cgroup.set_memory(2**30)
    assert (cpu / "cpu.cfs_period_us").read_text() == "10000"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "3500"
    assert (cpu / "cpu.cfs_burst_us").read_text() == "3500"
    assert (memory / "memory.limit_in_bytes").read_text() == str(2**30)
    assert (memory / "memory.swappiness").read_text() == "0"


def test_limits_of_version_2(tmp_path: Path) -> None:
    cgroup = NodeCgroup(Hierarchy(2, (tmp_path,)), "pi", "pi-01")
    cgroup.make()
    folder = tmp_path / "edgeddl-pi" / "pi-01"
    (folder / "cpu.max.burst").touch()
    cgroup.set_cores(2)
    cgroup.set_memory(2**30)
    assert (folder / "cpu.max").read_text() == "20000 10000"
    assert (folder / "cpu.max.burst").read_text() == "20000"
    assert (folder / "memory.max").read_text() == str(2**30)
    assert not (folder / "memory.swap.max").exists()  # not in this kernel
    for level in (tmp_path, tmp_path / "edgeddl-pi"):
        assert (level / "cgroup.subtree_control").read_text() == "+cpu +memory"


def test_a_small_quota_has_a_longer_period(tmp_path: Path) -> None:
    cgroup = NodeCgroup(Hierarchy(2, (tmp_path,)), "pi", "pi-01")
    cgroup.make()
    cgroup.set_cores(0.05)  # of 10 ms is below the kernel's minimum
    assert (tmp_path / "edgeddl-pi" / "pi-01" / "cpu.max").read_text() == "1000 20000"
    assert not (tmp_path / "edgeddl-pi" / "pi-01" / "cpu.max.burst").exists()  # an older kernel


def test_processes_of_all_trees_and_levels_are_found(tmp_path: Path) -> None:
    cgroup = NodeCgroup(version_1(tmp_path), "pi", "pi-01")
    cgroup.make()
    (tmp_path / "cpu/edgeddl-pi/pi-01/cgroup.procs").write_text("7\n5\n")
    below = tmp_path / "unified/edgeddl-pi/pi-01/payload/system.slice"
    below.mkdir(parents=True)
    (below / "cgroup.procs").write_text("5\n6\n")
    assert cgroup.processes() == [5, 6, 7]


def test_commands_enter_a_leaf_cgroup_of_a_machine(tmp_path: Path) -> None:
    cgroup = NodeCgroup(Hierarchy(2, (tmp_path,)), "pi", "pi-01")
    cgroup.make()
    folder = tmp_path / "edgeddl-pi" / "pi-01"
    cgroup.enter(5)
    assert (folder / "cgroup.procs").read_text() == "5"
    (folder / "supervisor").mkdir()
    cgroup.enter(6)
    assert (folder / "supervisor" / "cgroup.procs").read_text() == "6"


@pytest.mark.parametrize(("version", "name"), [(1, "usage_in_bytes"), (2, "current")])
def test_memory_and_throttling_of_a_node(tmp_path: Path, version: int, name: str) -> None:
    hierarchy = version_1(tmp_path) if version == 1 else Hierarchy(2, (tmp_path,))
    cgroup = NodeCgroup(hierarchy, "pi", "pi-01")
    cgroup.make()
    folder = hierarchy.roots[1 if version == 1 else 0] / "edgeddl-pi" / "pi-01"
    (folder / f"memory.{name}").write_text("4096\n")
    assert cgroup.memory_bytes() == 4096
    statistics = hierarchy.roots[0] / "edgeddl-pi" / "pi-01" / "cpu.stat"
    statistics.write_text("nr_periods 8\nnr_throttled 2\n")
    assert cgroup.throttled() == 0.25
    statistics.write_text("nr_periods 0\nnr_throttled 0\n")
    assert cgroup.throttled() == 0


def test_removal_includes_children_and_the_empty_cluster(tmp_path: Path) -> None:
    hierarchy = version_1(tmp_path)
    nodes = [NodeCgroup(hierarchy, "pi", f"pi-0{number}") for number in (1, 2)]
    for node in nodes:
        node.make()
    (tmp_path / "unified/edgeddl-pi/pi-01/payload/system.slice").mkdir(parents=True)
    assert nodes_left(hierarchy, "pi") == ["pi-01", "pi-02"]
    (tmp_path / "cpu/edgeddl-pi/cpu.shares").unlink()  # the kernel removes files with their folder
    nodes[0].remove()
    assert nodes_left(hierarchy, "pi") == ["pi-02"] and not nodes[0].exists()
    nodes[1].remove()
    nodes[1].remove()  # already removed
    assert [list(root.iterdir()) for root in hierarchy.roots] == [[], [], []]
