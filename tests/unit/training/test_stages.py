"""Slow stages of start-up are reported while they last."""

from __future__ import annotations

import logging
import time

import pytest

from edgeddl.training import stages


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "REPORT_SECONDS", 0.05)


def test_a_slow_stage_is_reported_before_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "edgeddl"), stages.stage("building model X"):
        deadline = time.monotonic() + 20
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
        assert caplog.messages == ["start-up: building model X takes longer than 0.05 s"]


def test_a_quick_stage_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "edgeddl"):
        with stages.stage("quick"):
            pass
        time.sleep(0.2)
    assert caplog.messages == []
