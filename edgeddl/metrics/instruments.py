"""The values of the metrics of names.py, in Prometheus' text format.

Written here and not taken from prometheus_client, whose rendering of a rank's 200 lines takes many
times as long (docs/monitoring.md): that time is taken from training, and a board's cores are slow.
Tests read the result with prometheus_client and with promtool.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from edgeddl.metrics.names import SECONDS_LIMITS, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LIMIT_LABELS = [f'le="{limit}"' for limit in (*SECONDS_LIMITS, "+Inf")]
Series = tuple[float, dict[str, str]]  # a value and its labels


class Instruments:
    """The metrics of one rank or node. Any thread may call.

    Labels with the same value in all series, such as the host, are given once. A series is there
    from its first value on: what is not known is absent.
    """

    def __init__(self, **constant_labels: str) -> None:
        self._constant_labels = constant_labels
        self._families: dict[Metric, dict[str, _Series]] = {}  # series by their labels, as written
        self._lock = threading.Lock()

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Give a gauge its value."""
        with self._lock:
            self._find(metric, labels).value = value

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        """Move a counter on."""
        with self._lock:
            self._find(metric, labels).value += amount

    def observe(self, metric: Metric, seconds: float, **labels: str) -> None:
        """Enter a value into a histogram."""
        with self._lock:
            series = self._find(metric, labels)
            series.value += seconds
            series.counts[bisect_left(SECONDS_LIMITS, seconds)] += 1

    def follow(self, metric: Metric, value: Callable[[], float], **labels: str) -> None:
        """A gauge that is asked for its value at each scrape."""
        with self._lock:
            self._find(metric, labels).ask = value

    def show(self, metric: Metric, *series: Series) -> None:
        """Have exactly these series of a gauge; without any, its value is not known any more."""
        with self._lock:
            self._families[metric] = {}
            for value, labels in series:
                self._find(metric, labels).value = value

    def render(self) -> bytes:
        """Everything there is."""
        with self._lock:
            lines = [
                line
                for metric, family in self._families.items()
                if family
                for line in _render(metric, family)
            ]
        return "".join(lines).encode()

    def _find(self, metric: Metric, labels: dict[str, str]) -> _Series:
        values = self._constant_labels | labels
        written = ",".join([f'{name}="{_escaped(values[name])}"' for name in metric.labels])
        family = self._families.setdefault(metric, {})
        if written not in family:
            family[written] = _Series()
        return family[written]


class _Series:
    """A number, or a histogram: the sum of its values, and how many lie up to each limit."""

    def __init__(self) -> None:
        self.value = 0.0
        self.ask: Callable[[], float] | None = None
        self.counts = [0] * len(LIMIT_LABELS)


def _render(metric: Metric, family: dict[str, _Series]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}\n"
    yield f"# TYPE {metric.name} {metric.kind}\n"
    for labels, series in family.items():
        if metric.kind == "histogram":
            yield from _render_histogram(metric.name, labels, series)
        else:
            value = series.ask() if series.ask else series.value
            yield f"{metric.name}{{{labels}}} {float(value)}\n"


def _render_histogram(name: str, labels: str, series: _Series) -> Iterator[str]:
    counts = list(accumulate(series.counts))
    for limit, count in zip(LIMIT_LABELS, counts, strict=True):
        yield f"{name}_bucket{{{labels},{limit}}} {count}\n"
    yield f"{name}_count{{{labels}}} {counts[-1]}\n"
    yield f"{name}_sum{{{labels}}} {series.value}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
