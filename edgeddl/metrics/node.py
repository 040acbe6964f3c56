"""Metrics of a node: sensors, power, links, memory and the last LINPACK result."""

from __future__ import annotations

import socket
from datetime import datetime
from pathlib import Path

import edgeddl
from edgeddl import hardware, machine
from edgeddl.linpack.record import NodeRecord, read_record
from edgeddl.metrics import names
from edgeddl.metrics.instruments import Instruments, Series
from edgeddl.metrics.power import PowerMeter

LINPACK_METRICS = (
    names.LINPACK,
    names.LINPACK_PEAK,
    names.LINPACK_PASSED,
    names.LINPACK_TIME,
    names.LINPACK_VERDICT,
)


class NodeMetrics:
    """Updates all metrics at each `sample`; the metric of a failing sensor becomes absent."""

    def __init__(self, root: Path, linpack: Path, meter: PowerMeter) -> None:
        self.instruments = Instruments(host=socket.gethostname())
        self._root = root
        self._linpack = linpack
        self._meter = meter
        self._core_time: hardware.CoreTime | None = None
        cpu = machine.cpu_name(root)
        self.instruments.set(names.NODE_BUILD, 1, version=edgeddl.__version__, cpu=cpu)

    def sample(self) -> None:
        sensors = hardware.read_sensors(self._root)
        self._set(names.TEMPERATURE, sensors.temperature_celsius)
        self._set(names.CLOCK, sensors.clock_hertz)
        self._set(names.CLOCK_MAX, sensors.clock_max_hertz)
        self._set_throttling(sensors.throttling)
        self._set_links(sensors.link_bytes_per_second)
        self._set_memory()
        self._set_power(sensors)
        self._set_linpack()

    def _set(self, metric: names.Metric, value: float | None, **labels: str) -> None:
        self.instruments.show(metric, *([] if value is None else [(value, labels)]))

    def _set_throttling(self, throttling: hardware.Throttling | None) -> None:
        bits = throttling.as_dict() if throttling else {}
        series = [
            (float(value), {"reason": reason, "when": when})
            for reason, whens in bits.items()
            for when, value in whens.items()
        ]
        self.instruments.show(names.THROTTLING, *series)

    def _set_links(self, links: dict[str, int]) -> None:
        series = [(float(speed), {"device": device}) for device, speed in links.items()]
        self.instruments.show(names.LINK, *series)

    def _set_memory(self) -> None:
        memory = hardware.read_memory(self._root)
        self._set(names.MEMORY, memory.total_bytes if memory else None)
        self._set(names.MEMORY_AVAILABLE, memory.available_bytes if memory else None)

    def _set_power(self, sensors: hardware.Sensors) -> None:
        utilization = self._utilization()
        self._set(names.UTILIZATION, utilization)
        power = self._meter.read(sensors, utilization)
        if power is None:
            self.instruments.show(names.POWER)
            return
        self._set(names.POWER, power.watts, source=power.source)
        self.instruments.add(names.ENERGY, power.joules, source=power.source)

    def _utilization(self) -> float | None:
        before, now = self._core_time, hardware.read_core_time(self._root)
        self._core_time = now
        return now.utilization_since(before) if now and before else None

    def _set_linpack(self) -> None:
        try:
            series = _linpack_series(read_record(self._linpack))
        except (OSError, ValueError):  # missing, damaged or of another version
            series = {}
        for metric in LINPACK_METRICS:
            self.instruments.show(metric, *series.get(metric, ()))


def _linpack_series(record: NodeRecord) -> dict[names.Metric, list[Series]]:
    figures, share = record.figures, record.share_of_peak
    engine = {"engine": figures.engine}
    moment = datetime.fromisoformat(record.time).timestamp()
    return {
        names.LINPACK: [(figures.gflops * 1e9, engine)],
        names.LINPACK_PEAK: [] if share is None else [(share, engine)],
        names.LINPACK_PASSED: [(float(figures.passed), engine)],
        names.LINPACK_TIME: [(moment, engine)],
        names.LINPACK_VERDICT: [(1.0, engine | {"verdict": record.verdict.rating})],
    }
