"""Formats sensors and memory as text."""

from __future__ import annotations

from edgeddl.hardware.memory import Memory
from edgeddl.hardware.sensors import Sensors

ABSENT = "no sensor"


def describe(sensors: Sensors, memory: Memory | None) -> dict[str, str]:
    """Each value with its unit, by name."""
    links = [
        f"{name} {8 * speed / 1e6:,.0f} Mbit/s"
        for name, speed in sensors.link_bytes_per_second.items()
    ]
    return {
        "memory": _describe_memory(memory),
        "temperature": _with_unit(sensors.temperature_celsius, "{:.1f} C"),
        "clock": _describe_clock(sensors),
        "throttling": sensors.throttling.describe() if sensors.throttling else ABSENT,
        "power": _with_unit(sensors.power_watts, "{:.1f} W"),
        "links": ", ".join(links) or "no wired link",
    }


def _with_unit(value: float | None, form: str) -> str:
    return ABSENT if value is None else form.format(value)


def _describe_memory(memory: Memory | None) -> str:
    if memory is None:
        return "unknown"
    total, available = memory.total_bytes / 2**20, memory.available_bytes / 2**20
    return f"{total:,.0f} MiB, {available:,.0f} available"


def _describe_clock(sensors: Sensors) -> str:
    now, most = sensors.clock_hertz, sensors.clock_max_hertz
    limit = f" of {most / 1e6:,.0f}" if most else ""
    return ABSENT if now is None else f"{now / 1e6:,.0f}{limit} MHz"
