"""A setting of the host's kernel that clusters need, put back when the last of them has gone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostSwitch:
    """Reads 0 or 1. `switched_on` is there while it was us; neither survives a reboot."""

    setting: Path
    switched_on: Path

    def on(self) -> None:
        """Where the kernel has it."""
        if self._reads("0"):
            self.switched_on.touch()
            self.setting.write_text("1")

    def off(self) -> None:
        """Unless others had switched it on."""
        if self.switched_on.exists():
            if self._reads("1"):
                self.setting.write_text("0")
            self.switched_on.unlink()

    def _reads(self, value: str) -> bool:
        return self.setting.exists() and self.setting.read_text().strip() == value
