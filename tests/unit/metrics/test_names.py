"""Metric names follow the Prometheus conventions."""

from __future__ import annotations

import re

import pytest

from edgeddl.metrics.names import ALL, Metric


def test_every_name_once() -> None:
    assert len({metric.name for metric in ALL}) == len(ALL) > 40


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_metric_is_named_by_the_rules(metric: Metric) -> None:
    assert re.fullmatch(r"edgeddl_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search("gauge|counter|histogram|milli|micro|bits", metric.name)
    assert metric.help.endswith(".") and "\n" not in metric.help
    assert set(metric.labels) & {"run", "host"}
