"""Current temperature, clock, throttling, power and link speeds of a machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeddl.hardware.files import find_hwmon, first_number, read_number, read_text
from edgeddl.hardware.firmware import ask_firmware
from edgeddl.hardware.power import read_measured_watts, read_package_joules
from edgeddl.hardware.throttling import Throttling, read_throttling

# Thermal zones and hwmon chips of the processor, in order of preference.
PROCESSOR_ZONES = ("cpu-thermal", "cpu_thermal", "x86_pkg_temp")
PROCESSOR_CHIPS = ("cpu_thermal", "coretemp", "k10temp", "zenpower")


@dataclass(frozen=True)
class Sensors:
    """Readings; None, or no entry, if there is no such sensor.

    clock_hertz: current clock of the fastest core
    clock_max_hertz: maximum clock
    link_bytes_per_second: of each connected network card, by name
    power_watts: measured by a chip in the supply line
    package_joules: energy counter of the processor, with an arbitrary origin
    """

    temperature_celsius: float | None
    clock_hertz: int | None
    clock_max_hertz: int | None
    throttling: Throttling | None
    link_bytes_per_second: dict[str, int]
    power_watts: float | None
    package_joules: float | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "temperature_celsius": self.temperature_celsius,
            "clock_hertz": self.clock_hertz,
            "clock_max_hertz": self.clock_max_hertz,
            "throttling": self.throttling and self.throttling.as_dict(),
            "link_bytes_per_second": self.link_bytes_per_second,
            "power_watts": self.power_watts,
            "package_joules": self.package_joules,
        }


def read_sensors(root: Path = Path("/")) -> Sensors:
    """Read all sensors. This takes milliseconds, and longer if vcgencmd is called."""
    return Sensors(
        temperature_celsius=read_temperature(root),
        clock_hertz=read_clock(root),
        clock_max_hertz=_fastest_policy(root, "cpuinfo_max_freq"),
        throttling=read_throttling(root),
        link_bytes_per_second=read_links(root),
        power_watts=read_measured_watts(root),
        package_joules=read_package_joules(root),
    )


def read_temperature(root: Path) -> float | None:
    """Temperature of the processor in degrees Celsius."""
    millidegrees = first_number(_temperature_files(root))
    return None if millidegrees is None else millidegrees / 1000


def _temperature_files(root: Path) -> Iterator[Path]:
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*"))
    kinds = [(read_text(zone / "type"), zone) for zone in zones]
    yield from (
        zone / "temp" for wanted in PROCESSOR_ZONES for kind, zone in kinds if kind == wanted
    )
    yield from (chip / "temp1_input" for chip in find_hwmon(root, PROCESSOR_CHIPS))


def read_clock(root: Path) -> int | None:
    """The clock measured by the firmware, or else the kernel's value.

    On a Raspberry Pi scaling_cur_freq is only the requested clock: the firmware throttles the
    processor without notifying the kernel. cpuinfo_cur_freq is measured, but only root may read it.
    """
    try:
        hertz = int(ask_firmware(root, "measure_clock", "arm") or "")
        return hertz or None  # 0 means unknown
    except ValueError:
        return _fastest_policy(root, "cpuinfo_cur_freq", "scaling_cur_freq")


def _fastest_policy(root: Path, *names: str) -> int | None:
    policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*"))
    kilohertz = [first_number(policy / name for name in names) for policy in policies]
    return max((1000 * value for value in kilohertz if value), default=None)


def read_links(root: Path) -> dict[str, int]:
    """Bytes per second of each connected wired network card.

    Only cards with a hardware device: the speed of bridges and virtual cards is meaningless.
    """
    cards = [
        card for card in sorted((root / "sys/class/net").glob("*")) if (card / "device").exists()
    ]
    megabits = {card.name: read_number(card / "speed") for card in cards}
    return {name: speed * 1_000_000 // 8 for name, speed in megabits.items() if speed and speed > 0}
