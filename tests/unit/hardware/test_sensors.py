"""Sensors of a Pi 4, a Pi 5 and a PC, from copies of their files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edgeddl.hardware import Memory, Sensors, Throttling, describe, read_memory, read_sensors
from edgeddl.hardware.throttling import REASONS
from tests.support import REPOSITORY

FIXTURES = REPOSITORY / "tests" / "fixtures"
NOTHING = Sensors(None, None, None, None, {}, None, None)


def test_a_throttled_pi_4() -> None:
    assert read_sensors(FIXTURES / "pi4") == Sensors(
        temperature_celsius=81.303,
        clock_hertz=1_000_265_600,  # though 1.5 GHz were asked for
        clock_max_hertz=1_500_000_000,
        throttling=Throttling(0x50005),
        link_bytes_per_second={"eth0": 125_000_000},
        power_watts=6.24,
        package_joules=None,
    )


def test_a_pi_5_without_vcgencmd() -> None:
    sensors = read_sensors(FIXTURES / "pi5")
    assert sensors.temperature_celsius == 52.35
    assert sensors.clock_hertz == 2_400_000_000
    assert sensors.throttling == Throttling(0)
    assert sensors.power_watts is None


def test_a_pc() -> None:
    assert read_sensors(FIXTURES / "x86") == Sensors(
        temperature_celsius=63.0,  # the processor's, not the case's
        clock_hertz=3_391_872_000,
        clock_max_hertz=3_400_000_000,
        throttling=None,
        link_bytes_per_second={"enp0s31f6": 125_000_000},  # neither a bridge nor a loose cable
        power_watts=None,
        package_joules=48211.733402,  # without what is counted in it a second time
    )


def test_a_machine_without_sensors_has_no_values(tmp_path: Path) -> None:
    assert read_sensors(tmp_path) == NOTHING
    assert read_memory(tmp_path) is None


@pytest.mark.parametrize("machine", ["pi4", "pi5", "x86"])
@pytest.mark.parametrize("content", ["", "-", "garbage\n", "\0\xff"])
def test_files_without_a_number_are_absent_sensors(
    tmp_path: Path, machine: str, content: str
) -> None:
    """The files exist, but their contents are invalid."""
    root = tmp_path / "root"
    shutil.copytree(FIXTURES / machine, root)
    for path in root.rglob("*"):
        if path.is_file() and path.name not in ("name", "type"):
            path.write_text(content)
    assert read_sensors(root) == NOTHING
    assert read_memory(root) is None


@pytest.mark.parametrize(
    "script",
    [
        "echo VCHI initialization failed; exit 255",  # the user is not in the group video
        "echo 'error=1 error_msg=\"Command not registered\"'",
        "exit 1",
    ],
)
def test_kernel_values_are_used_if_the_firmware_refuses(tmp_path: Path, script: str) -> None:
    root = tmp_path / "root"
    shutil.copytree(FIXTURES / "pi4", root)
    (root / "usr/bin/vcgencmd").write_text(f"#!/bin/sh\n{script}\n")
    sensors = read_sensors(root)
    assert sensors.clock_hertz == 1_500_000_000
    assert sensors.throttling == Throttling(0x50005)


def test_hanging_firmware_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    shutil.copytree(FIXTURES / "pi4", root)
    (root / "usr/bin/vcgencmd").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("edgeddl.hardware.firmware.TIMEOUT_SECONDS", 0.1)
    assert read_sensors(root).throttling == Throttling(0x50005)


def test_the_bits_of_throttling() -> None:
    throttling = Throttling(0x50005)
    assert throttling.as_dict() == {
        "under_voltage": {"now": True, "since_boot": True},
        "frequency_capped": {"now": False, "since_boot": False},
        "throttled": {"now": True, "since_boot": True},
        "soft_temperature_limit": {"now": False, "since_boot": False},
    }
    assert throttling.describe() == "under voltage now, throttled now"
    assert Throttling(0x80000).describe() == "soft temperature limit since boot"
    assert Throttling(0).describe() == "none"


@pytest.mark.parametrize(("bit", "reason"), list(enumerate(REASONS)))
def test_each_bit_is_one_reason(bit: int, reason: str) -> None:
    now, before = Throttling(1 << bit), Throttling(1 << (bit + 16))
    assert [r for r in REASONS if now.now(r)] == [reason] and not now.slowed_since_boot
    assert [r for r in REASONS if before.since_boot(r)] == [reason] and not before.slowed


def test_memory() -> None:
    assert read_memory(FIXTURES / "pi4") == Memory(3884440 * 1024, 2841720 * 1024)


def test_description() -> None:
    root = FIXTURES / "pi4"
    assert describe(read_sensors(root), read_memory(root)) == {
        "memory": "3,793 MiB, 2,775 available",
        "temperature": "81.3 C",
        "clock": "1,000 of 1,500 MHz",
        "throttling": "under voltage now, throttled now",
        "power": "6.2 W",
        "links": "eth0 1,000 Mbit/s",
    }
    assert describe(NOTHING, None)["temperature"] == "no sensor"


def test_vcgencmd_of_the_fixture_can_be_run() -> None:
    """Without the executable bit only the kernel's values would be tested."""
    subprocess.run([FIXTURES / "pi4/usr/bin/vcgencmd", "get_throttled"], check=True, timeout=10)
