"""Measured power and energy: from a chip in the supply line or from the processor."""

from __future__ import annotations

from pathlib import Path

from edgeddl.hardware.files import find_hwmon, first_number, read_number, read_text

# Power meters of Texas Instruments that can be wired into the 5 V line of a board.
POWER_CHIPS = ("ina219", "ina220", "ina226", "ina230", "ina231", "ina238", "ina260")


def read_measured_watts(root: Path) -> float | None:
    """From a power meter on the I2C bus with a kernel driver (ina2xx, in hwmon)."""
    chips = find_hwmon(root, POWER_CHIPS)
    microwatts = first_number(chip / "power1_input" for chip in chips)
    return None if microwatts is None else microwatts / 1e6


def read_package_joules(root: Path) -> float | None:
    """From the energy counters of x86 processors (RAPL), all sockets; readable only by root."""
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    packages = [zone for zone in zones if (read_text(zone / "name") or "").startswith("package")]
    microjoules = [read_number(zone / "energy_uj") for zone in packages]
    counted = [value for value in microjoules if value is not None]
    return sum(counted) / 1e6 if counted and len(counted) == len(microjoules) else None
