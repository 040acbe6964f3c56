"""The live page in a real browser, without a display."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from edgeddl.metrics.listening import listen
from edgeddl.metrics.server import Answer, MetricsServer, Pages
from edgeddl.training.extensions.live_page import LivePage
from edgeddl.training.step_window import StepWindow
from edgeddl.training.telemetry import RankStep

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HOSTS = ["pi-01", "<img src=x onerror=alert(1)>"]
# A browser's own time, in which the page asks a few times; the browser skips waiting.
PAGE_MILLISECONDS = 15_000


@pytest.fixture
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium: apt install chromium")
    return found


class TrainingPages:
    """Pages of a run that takes ten steps between two looks at it."""

    def __init__(self, *, temperatures: tuple[float, float]) -> None:
        self.asked = 0
        self._live = LivePage("resnet18-cifar10", HOSTS)
        self._window = StepWindow()
        self._temperatures = temperatures

    def pages(self) -> Pages:
        return self._live.pages() | {"/live.json": self._answer}

    def _answer(self) -> Answer:
        for step in range(10 * self.asked + 1, 10 * self.asked + 11):
            self._window.add(self._step())
            self._live.add(position(step), 2.0 / step, self._window)
        self.asked += 1
        return self._live.pages()["/live.json"]()

    def _step(self) -> tuple[RankStep, ...]:
        cool, hot = self._temperatures
        return (
            RankStep(1.0, 0.05, 0.2, 0.4, 0.3, 0.05, 32, 2e8, cool, 1.5e9, 0),
            RankStep(1.0, 0.05, 0.3, 0.5, 0.1, 0.05, 32, 2e8, hot, 1e9, 0x50005),
        )


def position(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "planned_steps": 1000,
        "epoch": step / 100,
        "planned_epochs": 10,
        "loss": 2.0 / step,
        "accuracy": 0.625,
        "learning_rate": 0.1,
        "remaining_seconds": 7380.0,
    }


def look(browser: str, profile: Path, pages: Pages, *options: str) -> tuple[str, str]:
    """The page as it stands after a while, and what the browser complains of."""
    listener = listen("127.0.0.1", 0, option="--port", who="a test")
    with closing(MetricsServer(listener, pages)) as server:
        command = [
            browser,
            "--headless",
            "--no-sandbox",  # which root has not
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            f"--virtual-time-budget={PAGE_MILLISECONDS}",
            *options,
            f"http://127.0.0.1:{server.port}/",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(complaints)


def test_the_page_shows_the_run_and_goes_on_by_itself(browser: str, tmp_path: Path) -> None:
    training = TrainingPages(temperatures=(55.0, 82.5))
    page, complaints = look(browser, tmp_path, training.pages(), "--dump-dom")
    assert complaints == ""
    assert training.asked >= 3
    shown = unescape(page)
    assert '<h1 id="run">resnet18-cifar10</h1>' in page
    assert f"step {10 * training.asked} of 1,000" in shown or (
        f"step {10 * (training.asked - 1)} of 1,000" in shown  # the last answer was on its way
    )
    assert "2 h 3 min left" in shown and "62.5 %" in shown
    assert page.count('<path d="M') == 4 + 2 + 2  # four charts of the run, two by rank
    assert "<h2>Accuracy</h2>" in page and 'class="charts rest0"' in page
    first_chart = page.partition("<svg")[2].partition("</svg>")[0]
    assert first_chart.count('text-anchor="middle"') >= 3  # steps beneath the axis
    rows = page.partition('<tbody id="ranks">')[2].partition("</tbody>")[0].split("</tr>")
    assert "slowest" not in rows[0] and "slowest, under voltage" in rows[1]
    assert "82.5 °C" in shown and "under voltage now, throttled now" in shown
    assert '<img src="x"' not in page and "&lt;img src=x" in page


def test_without_sensors_there_is_no_chart_of_them(browser: str, tmp_path: Path) -> None:
    training = TrainingPages(temperatures=(float("nan"), float("nan")))
    page, complaints = look(browser, tmp_path, training.pages(), "--dump-dom")
    assert complaints == ""
    assert 'class="charts rest2"' in page  # the last two share a row: no hole in the grid
    assert "<h2>Scaling efficiency</h2>" in page and "<h2>Temperature</h2>" not in page


def test_a_run_that_has_ended_is_said_to_have(browser: str, tmp_path: Path) -> None:
    pages = TrainingPages(temperatures=(50.0, 50.0)).pages()
    del pages["/live.json"]
    page, _ = look(browser, tmp_path, pages, "--dump-dom")
    assert 'class="alarm">The run does not respond' in page
