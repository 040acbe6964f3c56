"""The exporter of a node, with files of a Pi 4, a Pi 5 and a PC."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgeddl.__main__ import main
from edgeddl.hardware import CoreTime, Sensors, read_core_time
from edgeddl.metrics import names
from edgeddl.metrics.node import NodeMetrics
from edgeddl.metrics.power import PowerMeter, read_meter_file
from tests.support import REPOSITORY, check_with_promtool

FIXTURES = REPOSITORY / "tests" / "fixtures"
LINPACK_FILE = FIXTURES / "linpack.json"
LINPACK: dict[str, Any] = json.loads(LINPACK_FILE.read_text())
DARK = Sensors(None, None, None, None, {}, None, None)


class Clock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def read(metrics: NodeMetrics) -> dict[tuple[str, ...], float]:
    """Values by name and labels without the host."""
    text = metrics.instruments.render().decode()
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "host")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def make(root: Path, linpack: Path = Path("/nowhere"), **meter: Any) -> NodeMetrics:
    return NodeMetrics(root, linpack, PowerMeter(**{"file": None, "model": False} | meter))


def test_a_pi_4(tmp_path: Path) -> None:
    linpack = tmp_path / "linpack.json"
    shutil.copyfile(LINPACK_FILE, linpack)
    metrics = make(FIXTURES / "pi4", linpack)
    metrics.sample()
    values = read(metrics)
    assert values[names.TEMPERATURE.name,] == 81.303
    assert values[names.CLOCK.name,] == 1_000_265_600
    assert values[names.THROTTLING.name, "under_voltage", "now"] == 1
    assert values[names.THROTTLING.name, "frequency_capped", "now"] == 0
    assert values[names.LINK.name, "eth0"] == 125e6
    assert values[names.POWER.name, "ina219"] == 6.24
    assert values[names.LINPACK.name, "hpl"] == 15.5e9
    assert values[names.LINPACK_PEAK.name, "hpl"] == pytest.approx(0.646, abs=1e-3)
    assert values[names.LINPACK_VERDICT.name, "hpl", "healthy"] == 1
    assert values[names.LINPACK_TIME.name, "hpl"] == 1767323045
    check_with_promtool(metrics.instruments.render())


@pytest.mark.parametrize("machine", ["pi5", "x86"])
def test_metrics_without_a_sensor_are_absent(machine: str) -> None:
    metrics = make(FIXTURES / machine)
    metrics.sample()
    found = {name for name, *_ in read(metrics)}
    assert names.TEMPERATURE.name in found
    assert (names.THROTTLING.name in found) == (machine == "pi5")
    assert not {names.POWER.name, names.LINPACK.name, names.UTILIZATION.name} & found
    check_with_promtool(metrics.instruments.render())


def test_the_metric_of_a_failing_sensor_becomes_absent(tmp_path: Path) -> None:
    root, linpack = tmp_path / "root", tmp_path / "linpack.json"
    shutil.copytree(FIXTURES / "pi4", root)
    shutil.copyfile(LINPACK_FILE, linpack)
    metrics = make(root, linpack)
    metrics.sample()
    assert len(read(metrics)) > 20
    for folder in ("sys", "usr", "proc"):
        shutil.rmtree(root / folder)
    linpack.unlink()
    metrics.sample()
    # what was counted stays: a counter that vanished would look like a restart
    assert {name for name, *_ in read(metrics)} == {names.NODE_BUILD.name, names.ENERGY.name}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        '{"format": 1}',
        json.dumps(LINPACK | {"format": 2}),
        json.dumps(LINPACK | {"time": "soon"}),
        json.dumps(LINPACK | {"gflops": None}),
        json.dumps(LINPACK | {"gflops": "15.5"}),
        json.dumps(LINPACK | {"gflops": float("nan")}),
    ],
)
def test_an_invalid_linpack_file(tmp_path: Path, content: str) -> None:
    linpack = tmp_path / "linpack.json"
    linpack.write_text(content)
    metrics = make(FIXTURES / "pi4", linpack)
    metrics.sample()
    assert not [name for name, *_ in read(metrics) if "linpack" in name]


def test_estimated_power_follows_the_load_and_the_clock() -> None:
    clock = Clock()
    meter = PowerMeter(file=None, model=True, clock=clock)
    assert meter.read(DARK, None) is None  # no load is known yet
    clock.now += 10
    idle = meter.read(DARK, 0.0)
    assert idle and (idle.source, idle.watts, idle.joules) == ("model", 2.15, 21.5)
    busy = meter.read(DARK, 1.0)
    assert busy and busy.watts == pytest.approx(6.1)
    throttled = Sensors(None, 750_000_000, 1_500_000_000, None, {}, None, None)
    slow = meter.read(throttled, 1.0)
    assert slow and slow.watts == pytest.approx((2.15 + 6.1) / 2)


def test_nothing_is_estimated_for_a_machine_without_a_model() -> None:
    assert PowerMeter(file=None, model=False).read(DARK, 1.0) is None


def test_a_processors_own_counter() -> None:
    clock = Clock()
    meter = PowerMeter(file=None, model=False, clock=clock)

    def after(seconds: float, joules: float) -> float | None:
        clock.now += seconds
        power = meter.read(Sensors(None, None, None, None, {}, None, joules), None)
        return power and power.watts

    assert after(0, 1000.0) is None
    assert after(2, 1030.0) == 15.0
    assert after(2, 5.0) is None  # the counter has begun anew
    assert after(4, 25.0) == 5.0


@pytest.mark.parametrize(
    ("content", "watts"),
    [
        ("5.12\n", 5.12),
        ("7\n", 7.0),
        ("4.9\n5.3 W\n\n", 5.3),
        ("6.1, 5.02 V, 1.21 A\n", 6.1),
        ("", None),
        ("no meter\n", None),
        ("2026-01-02T03:04:05 5.1\n", None),
        ("03:04 5.1\n", None),
        ("nan\n", None),
        ("-1\n", None),
    ],
)
def test_a_meters_file(tmp_path: Path, content: str, watts: float | None) -> None:
    file = tmp_path / "power"
    file.write_text(content)
    assert read_meter_file(file) == watts


def test_a_meters_file_that_has_grown_for_months(tmp_path: Path) -> None:
    file = tmp_path / "power"
    file.write_text("4.0 W\n" * 1_000_000 + "5.25 W\n")
    assert read_meter_file(file) == 5.25


def test_an_old_file_of_a_meter_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "power"
    file.write_text("5.0\n")
    os.utime(file, (0, 0))
    assert read_meter_file(file) is None
    assert read_meter_file(tmp_path / "absent") is None


def test_the_file_of_a_meter_takes_precedence(tmp_path: Path) -> None:
    file = tmp_path / "power"
    file.write_text("5.5\n")
    metrics = make(FIXTURES / "pi4", file=file)
    metrics.sample()
    assert read(metrics)[names.POWER.name, "file"] == 5.5


def test_core_time() -> None:
    assert read_core_time(FIXTURES / "pi4") == CoreTime(687_680, 3_175_280)
    assert CoreTime(150, 400).utilization_since(CoreTime(100, 200)) == 0.25
    assert CoreTime(150, 400).utilization_since(CoreTime(150, 400)) is None
    assert read_core_time(Path("/nowhere")) is None


def test_the_service_serves_and_ends_at_once_by_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgeddl", "exporter", "--port", "0"]
    service = subprocess.Popen(
        [*command, "--root", str(FIXTURES / "pi4")],
        env=os.environ | {"EDGEDDL_STATE": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stderr is not None
        url = service.stderr.readline().split()[-1]
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert b"edgeddl_node_temperature_celsius" in answer.read()
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=30) == 0
        assert service.stderr.read() == ""
    finally:
        service.kill()
        service.communicate()


def test_a_wrong_port_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exporter", "--port", "70000"]) == 2
    assert "--port 70000" in capsys.readouterr().err
