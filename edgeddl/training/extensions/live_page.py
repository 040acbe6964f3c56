"""Rank 0's live page, which shows the progress of a run without Grafana.

The page is one self-contained file (metrics/live.html) that fetches `live.json` every two seconds.
The history of the run is kept in memory as at most HISTORY_POINTS points: when there are more,
every second point is dropped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from edgeddl.hardware import Throttling
from edgeddl.metrics.server import Answer, Pages
from edgeddl.training.step_window import WINDOW_STEPS, StepWindow
from edgeddl.training.telemetry import RankStep

HISTORY_POINTS = 240


class Point(NamedTuple):
    """One point of the history; lists are by rank."""

    step: int
    loss: float
    images_per_second: float
    efficiency: float | None
    accuracy: float | None
    images_per_second_alone: list[float]
    temperature_celsius: list[float]


class LivePage:
    """Filled by steps, read by the server's thread: shared values are replaced, never modified."""

    def __init__(self, run: str, hosts: Sequence[str]) -> None:
        self._run = run
        self._hosts = hosts
        self._losses: deque[float] = deque(maxlen=WINDOW_STEPS)
        self._points: list[Point] = []
        self._every_steps = 1
        self._latest: dict[str, Any] = {}

    def pages(self) -> Pages:
        page = read_page()
        return {"/": lambda: page, "/live.json": self._answer}

    def add(self, position: Mapping[str, Any], loss: float, window: StepWindow) -> None:
        """Add a step."""
        self._losses.append(loss)
        self._latest = {
            **position,
            "images_per_second": window.images_per_second,
            "efficiency": window.efficiency,
            "slowest_rank": window.slowest_rank,
            "ranks": self._describe_ranks(window),
        }
        if position["step"] % self._every_steps == 0:
            self._add_point(position, window)

    def _add_point(self, position: Mapping[str, Any], window: StepWindow) -> None:
        point = Point(
            position["step"],
            sum(self._losses) / len(self._losses),
            window.images_per_second,
            window.efficiency,
            position["accuracy"],
            window.images_per_second_alone,
            [rank.temperature_celsius for rank in window.latest],
        )
        points = [*self._points, point]
        if len(points) > HISTORY_POINTS:
            self._every_steps *= 2
            points = [point for point in points if point.step % self._every_steps == 0]
        self._points = points

    def _describe_ranks(self, window: StepWindow) -> list[dict[str, Any]]:
        rows = zip(
            self._hosts,
            window.images_per_second_by_rank,
            window.images_per_second_alone,
            window.phase_shares,
            window.latest,
            strict=True,
        )
        return [
            {
                "rank": rank,
                "host": host,
                "images_per_second": speed,
                "images_per_second_alone": alone,
                "phase_shares": shares,
                **_describe_vitals(latest),
            }
            for rank, (host, speed, alone, shares, latest) in enumerate(rows)
        ]

    def _answer(self) -> Answer:
        points = self._points
        history = {name: [getattr(point, name) for point in points] for name in Point._fields}
        value = {"run": self._run, **self._latest, "history": history}
        return Answer(json.dumps(_readable(value)).encode(), "application/json")


def read_page() -> Answer:
    """The page, with a policy that lets browsers run only its own script."""
    text = files("edgeddl.metrics").joinpath("live.html").read_text(encoding="utf-8")
    script, style = (_hash_of(tag, text) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Answer(text.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": policy})


def _hash_of(tag: str, text: str) -> str:
    content = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    assert content is not None
    digest = hashlib.sha256(content[1].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _describe_vitals(rank: RankStep) -> dict[str, Any]:
    known = not math.isnan(rank.throttling)
    return {
        "temperature_celsius": rank.temperature_celsius,
        "clock_hertz": rank.clock_hertz,
        "throttling": Throttling(int(rank.throttling)).describe() if known else None,
        "memory_bytes": rank.memory_bytes,
    }


def _readable(value: Any) -> Any:
    """Round numbers to the visible digits; JSON has no NaN or infinity, so these become null."""
    if isinstance(value, dict):
        return {name: _readable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_readable(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value
