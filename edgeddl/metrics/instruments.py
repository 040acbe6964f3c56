"""The values of the metrics of names.py, held by prometheus_client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from edgeddl.metrics.names import SECONDS_LIMITS, Metric

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
KINDS: dict[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
Series = tuple[float, dict[str, str]]  # a value and its labels
Key = tuple[Metric, tuple[tuple[str, str], ...]]


class Instruments:
    """The metrics of one rank or node, in their own registry.

    Labels that are the same in all series, such as the host, are set once. A series exists from its
    first value on, so unknown values are absent. Thread-safe.
    """

    def __init__(self, **constant_labels: str) -> None:
        disable_created_metrics()  # drops the unused _created series of each counter
        self._registry = CollectorRegistry()
        self._constant_labels = constant_labels
        self._families: dict[Metric, Any] = {}
        self._series: dict[Key, Any] = {}
        self._lock = threading.Lock()

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._find(metric, labels).set(value)

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        """Increase a counter."""
        self._find(metric, labels).inc(amount)

    def observe(self, metric: Metric, seconds: float, **labels: str) -> None:
        """Add a value to a histogram."""
        self._find(metric, labels).observe(seconds)

    def follow(self, metric: Metric, value: Callable[[], float], **labels: str) -> None:
        """Set a gauge by a function that is called at each scrape."""
        self._find(metric, labels).set_function(value)

    def show(self, metric: Metric, *series: Series) -> None:
        """Replace all series of a gauge; without any, the gauge becomes absent."""
        for value, labels in series:
            self.set(metric, value, **labels)
        shown = {_key(metric, labels) for _, labels in series}
        with self._lock:
            for key in [key for key in self._series if key[0] is metric and key not in shown]:
                del self._series[key]
                self._families[metric].remove(*self._label_values(metric, dict(key[1])))

    def render(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self._registry)

    def _find(self, metric: Metric, labels: dict[str, str]) -> Any:
        key = _key(metric, labels)
        with self._lock:
            if key not in self._series:
                self._series[key] = self._make(metric, labels)
            return self._series[key]

    def _make(self, metric: Metric, labels: dict[str, str]) -> Any:
        if metric not in self._families:
            limits = {"buckets": SECONDS_LIMITS} if metric.kind == "histogram" else {}
            self._families[metric] = KINDS[metric.kind](
                metric.name, metric.help, metric.labels, registry=self._registry, **limits
            )
        return self._families[metric].labels(*self._label_values(metric, labels))

    def _label_values(self, metric: Metric, labels: dict[str, str]) -> list[str]:
        values = self._constant_labels | labels
        return [values[name] for name in metric.labels]


def _key(metric: Metric, labels: dict[str, str]) -> Key:
    return metric, tuple(labels.items())
