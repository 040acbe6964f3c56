"""Waiting for the last scrape of a run."""

from __future__ import annotations

import threading
import time

import pytest

from edgeddl.config import metrics_port
from edgeddl.errors import ConfigError
from edgeddl.metrics.scrapes import Scrapes

LONG = 3600.0


def test_no_wait_without_any_scrape() -> None:
    Scrapes(LONG).await_last()


def test_no_wait_after_an_old_scrape() -> None:
    scrapes = Scrapes(timeout_seconds=0.01)
    scrapes.count()
    time.sleep(0.05)
    scrapes.await_last()


def test_wait_for_one_more_scrape() -> None:
    scrapes = Scrapes(LONG)
    scrapes.count()
    waiting = threading.Thread(target=scrapes.await_last, daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    while waiting.is_alive():  # the first may come before it has begun to wait
        scrapes.count()
        waiting.join(0.01)


@pytest.mark.parametrize(
    ("option", "variable", "port"),
    [
        (None, None, None),
        (None, "", None),
        (None, "9836", 9836),
        (None, "0", None),
        (9000, "9836", 9000),
        (0, "9836", None),
        (9000, "nonsense", 9000),
    ],
)
def test_the_option_comes_before_the_variable(
    monkeypatch: pytest.MonkeyPatch, option: int | None, variable: str | None, port: int | None
) -> None:
    monkeypatch.delenv("EDGEDDL_METRICS_PORT", raising=False)
    if variable is not None:
        monkeypatch.setenv("EDGEDDL_METRICS_PORT", variable)
    assert metrics_port(option) == port


@pytest.mark.parametrize("variable", ["nonsense", "-1", "9836.5", " "])
def test_a_variable_that_is_not_a_port(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("EDGEDDL_METRICS_PORT", variable)
    with pytest.raises(ConfigError, match="EDGEDDL_METRICS_PORT"):
        metrics_port(None)
