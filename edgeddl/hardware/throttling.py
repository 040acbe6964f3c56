"""Why a Raspberry Pi is throttled: the bits of `vcgencmd get_throttled`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeddl.hardware.files import read_text
from edgeddl.hardware.firmware import ask_firmware

# Meaning of bits 0 to 3; bits 16 to 19 mean the same since boot.
REASONS = ("under_voltage", "frequency_capped", "throttled", "soft_temperature_limit")
SINCE_BOOT = 16
# "soc" on a Pi 4, "soc@107c000000" on a Pi 5
FIRMWARE_FILES = "sys/devices/platform/soc*/soc*:firmware/get_throttled"


@dataclass(frozen=True)
class Throttling:
    """The bits of the firmware and their meaning."""

    bits: int

    def now(self, reason: str) -> bool:
        return bool(self.bits >> REASONS.index(reason) & 1)

    def since_boot(self, reason: str) -> bool:
        return bool(self.bits >> (REASONS.index(reason) + SINCE_BOOT) & 1)

    @property
    def slowed(self) -> bool:
        """Whether the board is throttled now, for any reason."""
        return any(self.now(reason) for reason in REASONS)

    @property
    def slowed_since_boot(self) -> bool:
        return any(self.since_boot(reason) for reason in REASONS)

    def describe(self) -> str:
        """E.g. "under voltage now, throttled since boot"."""
        now = [reason for reason in REASONS if self.now(reason)]
        before = [r for r in REASONS if self.since_boot(r) and not self.now(r)]
        parts = [f"{r} now" for r in now] + [f"{r} since boot" for r in before]
        return ", ".join(parts).replace("_", " ") or "none"

    def as_dict(self) -> dict[str, dict[str, bool]]:
        return {
            reason: {"now": self.now(reason), "since_boot": self.since_boot(reason)}
            for reason in REASONS
        }


def read_throttling(root: Path) -> Throttling | None:
    """From vcgencmd, or else from the kernel's file with the same bits; None if neither exists."""
    kernel = (read_text(path) for path in sorted(root.glob(FIRMWARE_FILES)))
    for answer in (ask_firmware(root, "get_throttled"), *kernel):
        try:
            return Throttling(int(answer or "", base=16))
        except ValueError:
            continue
    return None
