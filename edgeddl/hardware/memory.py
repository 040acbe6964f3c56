"""Memory of the machine, and how much of it cgroups allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from edgeddl.hardware.files import read_number, read_text

# For cgroup version 2 and version 1: folder of the hierarchy, files with limit and usage, and the
# entry of memory.stat for memory that the kernel would reclaim.
UNIFIED = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
LEGACY = (
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
)


@dataclass(frozen=True)
class Memory:
    """Bytes; available: the kernel's estimate of what programs can use without swapping."""

    total_bytes: int
    available_bytes: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def read_memory(root: Path = Path("/")) -> Memory | None:
    lines = (read_text(root / "proc/meminfo") or "").splitlines()
    entries = {name: text.split() for name, _, text in (line.partition(":") for line in lines)}
    try:
        total, available = (int(entries[name][0]) for name in ("MemTotal", "MemAvailable"))
    except (KeyError, IndexError, ValueError):
        return None
    return Memory(total * 1024, available * 1024)


def allowed_bytes(root: Path = Path("/")) -> int | None:
    """Memory that this process can use without swapping or being killed; None if unknown."""
    memory = read_memory(root)
    if memory is None:
        return None
    return min([memory.available_bytes, *_left_in_cgroups(root)])


def _left_in_cgroups(root: Path) -> Iterator[int]:
    """Memory left in this process's cgroup and in its parents, each of which may have a limit."""
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        hierarchy, limit, usage, idle = LEGACY if controllers else UNIFIED
        top = root / hierarchy
        own = top / path.lstrip("/")
        for folder in [own, *(one for one in own.parents if one.is_relative_to(top))]:
            most, used = read_number(folder / limit), read_number(folder / usage)
            if most is not None and used is not None:
                yield max(most - used + _entry(folder / "memory.stat", idle), 0)


def _entry(path: Path, name: str) -> int:
    lines = (line.split() for line in (read_text(path) or "").splitlines())
    return next((int(words[1]) for words in lines if words[0] == name), 0)
