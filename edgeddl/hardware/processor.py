"""Utilisation of the processor cores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeddl.hardware.files import read_text


@dataclass(frozen=True)
class CoreTime:
    """Time of all cores since boot, in the kernel's ticks."""

    busy: int
    total: int

    def utilization_since(self, before: CoreTime) -> float | None:
        """The fraction of time that was not idle, 0 to 1; None if no time has passed."""
        total = self.total - before.total
        busy = self.busy - before.busy
        return min(max(busy / total, 0.0), 1.0) if total > 0 else None


def read_core_time(root: Path = Path("/")) -> CoreTime | None:
    """From the first line of /proc/stat: user nice system idle iowait irq softirq steal ..."""
    name, *ticks = (read_text(root / "proc/stat") or "cpu").split("\n")[0].split()
    try:
        user, nice, system, idle, waiting, *other = (int(tick) for tick in ticks[:8])
    except ValueError:
        return None
    busy = user + nice + system + sum(other)
    return CoreTime(busy, busy + idle + waiting) if name == "cpu" else None
