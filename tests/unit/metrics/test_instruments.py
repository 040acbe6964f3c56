"""The text format, read by the parsers of Prometheus."""

from __future__ import annotations

import math
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgeddl.metrics import names
from edgeddl.metrics.instruments import Instruments
from tests.support import check_with_promtool

RANK_0 = {"run": "a", "rank": "0", "host": "pi-01"}


def read(instruments: Instruments) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = instruments.render().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_unknown_values_are_absent() -> None:
    assert Instruments(**RANK_0).render() == b""


def test_gauges_and_counters() -> None:
    instruments = Instruments(**RANK_0)
    instruments.set(names.LOSS, 2.5)
    instruments.set(names.LOSS, 1.25)
    instruments.add(names.SENT_BYTES, 2**53)
    instruments.add(names.SENT_BYTES, 0)
    labels = tuple(sorted(RANK_0.items()))
    assert read(instruments) == {
        ("edgeddl_loss", labels): 1.25,
        ("edgeddl_sent_bytes_total", labels): 2**53,
    }
    check_with_promtool(instruments.render())


def test_a_histogram_counts_up_to_and_with_each_limit() -> None:
    instruments = Instruments(**RANK_0)
    for seconds in (0.0, 0.001, 0.002, 60.0, 1000.0):
        instruments.observe(names.STEP_SECONDS, seconds)
    values = {
        (name, dict(labels).get("le")): value for (name, labels), value in read(instruments).items()
    }
    assert values["edgeddl_step_seconds_bucket", "0.001"] == 2
    assert values["edgeddl_step_seconds_bucket", "0.0025"] == 3
    assert values["edgeddl_step_seconds_bucket", "60.0"] == 4
    assert values["edgeddl_step_seconds_bucket", "+Inf"] == 5
    assert values["edgeddl_step_seconds_count", None] == 5
    assert values["edgeddl_step_seconds_sum", None] == 1060.003
    check_with_promtool(instruments.render())


@pytest.mark.parametrize("host", ['a"b', "a\\b", "a\nb", "a\\nb", "ä{}=,", ""])
def test_any_name_of_a_host_comes_back(host: str) -> None:
    instruments = Instruments(host=host)
    instruments.set(names.MEMORY, 1)
    assert read(instruments) == {("edgeddl_node_memory_bytes", (("host", host),)): 1}
    check_with_promtool(instruments.render())


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e-300, 1.7e308, -0.0])
def test_any_number_comes_back(value: float) -> None:
    instruments = Instruments(**RANK_0)
    instruments.set(names.LOSS, value)
    assert list(read(instruments).values()) == [value]
    check_with_promtool(instruments.render())


def test_nan_comes_back() -> None:
    instruments = Instruments(**RANK_0)
    instruments.set(names.LOSS, math.nan)
    assert math.isnan(next(iter(read(instruments).values())))
    check_with_promtool(instruments.render())


def test_a_gauge_that_is_asked_at_each_scrape() -> None:
    instruments = Instruments(**RANK_0)
    ages = iter([1.0, 2.0])
    instruments.follow(names.CHECKPOINT_AGE, lambda: next(ages))
    assert list(read(instruments).values()) == [1.0]
    assert list(read(instruments).values()) == [2.0]


def test_series_that_are_no_longer_shown_are_removed() -> None:
    instruments = Instruments(host="pi-01")
    instruments.show(names.LINK, (125e6, {"device": "eth0"}), (12.5e6, {"device": "eth1"}))
    instruments.show(names.LINK, (125e6, {"device": "eth1"}))
    assert read(instruments) == {(names.LINK.name, (("device", "eth1"), ("host", "pi-01"))): 125e6}
    instruments.show(names.LINK)
    assert read(instruments) == {}


def test_no_count_of_several_threads_is_lost() -> None:
    instruments = Instruments(**RANK_0)

    def count() -> None:
        for _ in range(2000):
            instruments.add(names.STEPS, 1)
            instruments.observe(names.BUCKET_SECONDS, 0.5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = {name: value for (name, _), value in read(instruments).items()}
    assert values["edgeddl_steps_total"] == 8000
    assert values["edgeddl_bucket_allreduce_seconds_count"] == 8000
