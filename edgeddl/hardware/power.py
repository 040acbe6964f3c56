"""Power and energy that something measures: a chip in the supply line, the processor itself."""

from __future__ import annotations

from pathlib import Path

from edgeddl.hardware.files import find_hwmon, first_number, read_number, read_text

# Texas Instruments' meters, one of which people solder into a board's 5 V line.
POWER_CHIPS = ("ina219", "ina220", "ina226", "ina230", "ina231", "ina238", "ina260")


def read_measured_watts(root: Path) -> float | None:
    """From a power meter on the I2C bus that the kernel knows (ina2xx, in hwmon)."""
    chips = find_hwmon(root, POWER_CHIPS)
    microwatts = first_number(chip / "power1_input" for chip in chips)
    return None if microwatts is None else microwatts / 1e6


def read_package_joules(root: Path) -> float | None:
    """The energy counters of x86 processors (RAPL), all sockets together; root may read them."""
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    packages = [zone for zone in zones if (read_text(zone / "name") or "").startswith("package")]
    microjoules = [read_number(zone / "energy_uj") for zone in packages]
    counted = [value for value in microjoules if value is not None]
    return sum(counted) / 1e6 if counted and len(counted) == len(microjoules) else None
