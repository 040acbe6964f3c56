"""A kernel setting of the host that clusters enable, restored when the last cluster is removed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sysctl:
    """A setting that is 0 or 1. `marker` exists while the setting is 1 because of us.

    Neither survives a reboot.
    """

    setting: Path
    marker: Path

    def enable(self) -> None:
        """Set it to 1, if the kernel has this setting."""
        if self._reads("0"):
            self.marker.touch()
            self.setting.write_text("1")

    def restore(self) -> None:
        """Set it back to 0, unless it was already 1 before."""
        if self.marker.exists():
            if self._reads("1"):
                self.setting.write_text("0")
            self.marker.unlink()

    def _reads(self, value: str) -> bool:
        return self.setting.exists() and self.setting.read_text().strip() == value
