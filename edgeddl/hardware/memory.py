"""The machine's memory, and a process's part of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from edgeddl.hardware.files import read_text


@dataclass(frozen=True)
class Memory:
    """Bytes; available: what programs can get without swapping, as the kernel estimates it."""

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
