"""The page and its plots."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from edgeddl import hardware
from edgeddl.__main__ import main
from edgeddl.report.run import read_runs
from edgeddl.training.extensions.live_page import read_page
from tests.support import REPOSITORY
from tests.unit.report.test_reading_runs import START, steps, write
from tests.unit.training.training_runs import train

pytest.importorskip("matplotlib", reason="plots need Matplotlib: pip install 'edgeddl[report]'")

PLOTS = {"loss", "throughput", "time", "scaling", "memory"}


class References(HTMLParser):
    """Every address that a browser would fetch or link to."""

    ADDRESSES = ("src", "href", "xlink:href", "action", "data", "poster", "srcset")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in self.ADDRESSES]


def check_self_contained(page: str) -> None:
    found = References(page)
    assert all(address.startswith("#") for address in found.addresses)
    assert not found.tags & {"script", "link", "iframe", "object", "embed", "img", "base"}
    assert not re.search(r"@import|https?:|//[a-z]", page)
    assert all(target.startswith("#") for target in re.findall(r"url\((.*?)\)", page))


def report(*arguments: str | Path) -> int:
    return main(["report", *map(str, arguments)])


def test_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", 2)
    assert report(tmp_path / "run") == 0
    folder = tmp_path / "run" / "report"
    assert {path.stem for path in folder.glob("*.png")} == PLOTS
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
    page = (folder / "report.html").read_text()
    check_self_contained(page)
    assert page.count("<svg") == len(PLOTS)
    assert "no readable temperature" in page
    shown = capsys.readouterr().out
    assert str(folder / "report.html") in shown and "efficiency" in shown


def test_phases_have_the_colours_of_the_live_page() -> None:
    from edgeddl.report.figures import PHASE_COLOURS

    live = read_page().body.decode()
    for phase, colour in PHASE_COLOURS.items():
        assert re.findall(rf"--{phase}: (#\w+)", live) == [colour]


def test_nothing_is_clipped_at_the_top(tmp_path: Path) -> None:
    from edgeddl.report import figures

    epoch = {"event": "epoch", "time": 1002.0, "epoch": 1, "step": 3, "loss": 1.0, "accuracy": 1.0}
    lines = [steps(step, 1000.0 + step, 1.0, memory_bytes=2**30) for step in range(1, 9)]
    run = read_runs([write(tmp_path / "run", START, *lines, epoch)])
    for draw in (figures._draw_course, figures._draw_memory, figures._draw_throughput):
        figure = draw(run)
        assert figure is not None
        for ax in figure.axes:
            highest = max(max(line.get_ydata()) for line in ax.lines)
            low, high = ax.get_ylim()
            assert highest < high - 0.02 * (high - low), ax.get_title()


def test_a_diverged_run_has_a_logarithmic_axis(tmp_path: Path) -> None:
    from edgeddl.report.figures import _draw_course

    for last, scale in ((3.0, "linear"), (8.5e17, "log")):
        lines = [steps(1, 1001.0, 2.3), steps(2, 1002.0, last)]
        figure = _draw_course(read_runs([write(tmp_path / scale, START, *lines)]))
        assert figure is not None and figure.axes[0].get_yscale() == scale


def test_all_ranks_are_drawn_beside_a_run_of_fewer(tmp_path: Path) -> None:
    train(tmp_path / "two", 2)
    train(tmp_path / "one", 1, max_steps=3)
    assert report(tmp_path / "two", tmp_path / "one", "--output", tmp_path / "out") == 0
    page = (tmp_path / "out" / "report.html").read_text()
    section = page.partition('<section id="time">')[2].partition("</section>")[0]
    assert re.findall(r">(\d) [^<]*thread-\d<", section) == ["0", "1", "0"]


def test_lines_of_a_faster_and_a_slower_run_are_not_clipped(tmp_path: Path) -> None:
    from edgeddl.report.figures import _draw_memory, _draw_throughput

    write(tmp_path / "slow", START, steps(4, 1002.0, 2.0), steps(5, 1004.0, 2.0))
    fast = {"images": 160, "memory_bytes": 2**30}
    write(tmp_path / "fast", START, steps(4, 1002.0, 2.0, **fast), steps(5, 1004.0, 2.0, **fast))
    runs = read_runs([tmp_path / "slow", tmp_path / "fast"])
    for draw, most in ((_draw_throughput, 80), (_draw_memory, 1024)):
        figure = draw(runs)
        assert figure is not None
        assert {ax.get_ylim()[0] for ax in figure.axes} == {0}
        assert all(ax.get_ylim()[1] > most for ax in figure.axes)


def test_runs_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pi4 = partial(hardware.read_sensors, REPOSITORY / "tests" / "fixtures" / "pi4")
    monkeypatch.setattr(hardware, "read_sensors", pi4)
    train(tmp_path / "full", 2)
    train(tmp_path / "half", 2, compression="fp16")
    train(tmp_path / "alone", 1, max_steps=3)
    folders = [tmp_path / name for name in ("full", "half", "alone")]
    assert report(*folders, "--output", tmp_path / "out") == 0
    page = (tmp_path / "out" / "report.html").read_text()
    check_self_contained(page)
    assert "<td>--compression</td><td>none</td><td>fp16</td><td>none</td>" in page
    assert "--run-dir" not in page
    assert {path.stem for path in (tmp_path / "out").glob("*.png")} == PLOTS | {"temperature"}


def test_a_run_without_a_step(tmp_path: Path) -> None:
    assert report(write(tmp_path, START)) == 0
    assert "No step has been recorded yet" in (tmp_path / "report" / "report.html").read_text()


def test_text_from_run_folders_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    options = {"epochs": 1, "model": evil, "dataset": evil}
    ranks = [{"host": evil, "cpu": evil, "threads": 1}]
    folder = tmp_path / "<b>&run"
    end = {"event": "end", "time": 1005.0, "outcome": "failed", "error": evil}
    write(folder, START | {"options": options, "ranks": ranks}, steps(3, 1002.0, 2.5), end)
    assert report(folder) == 0
    page = (folder / "report" / "report.html").read_text()
    assert "<script" not in page and "<b>&run" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_json_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, START, steps(3, 1002.0, 2.5), steps(4, 1003.0, float("nan")))
    assert report(tmp_path, "--json") == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["results"]["images_per_second"] == 8.0
    assert run["losses"] == [[3, 2.5]]
    assert not (tmp_path / "report").exists()


def test_a_missing_run_folder_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(tmp_path / "absent") == 2
    errors = capsys.readouterr().err
    assert "no such folder" in errors and "hint:" in errors
    assert "Traceback" not in errors


def test_an_output_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert report(write(tmp_path / "run", START), "--output", tmp_path / "file") == 2
    assert "--output" in capsys.readouterr().err


def test_without_matplotlib(tmp_path: Path) -> None:
    write(tmp_path / "run", START, steps(3, 1002.0, 2.5))
    absent = tmp_path / "matplotlib.py"
    absent.write_text("raise ImportError('not installed')\n")
    command = [sys.executable, "-m", "edgeddl", "report", str(tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    run = partial(subprocess.run, env=environment, capture_output=True, text=True, check=False)
    done = run(command)
    assert done.returncode == 2
    assert "pip install 'edgeddl[report]'" in done.stderr and "Traceback" not in done.stderr
    assert run([*command, "--json"]).returncode == 0


@pytest.mark.parametrize("dark", [False, True])
def test_in_a_browser(tmp_path: Path, dark: bool) -> None:
    """Text and plots are visible in light and dark mode."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: apt install chromium")
    from matplotlib.image import imread

    train(tmp_path / "run", 2)
    report(tmp_path / "run")
    page, shot = tmp_path / "run" / "report" / "report.html", tmp_path / "shot.png"
    subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,2400",
         f"--blink-settings=preferredColorScheme={0 if dark else 1}",
         f"--screenshot={shot}", page.as_uri()],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    pixels = imread(shot)[..., :3].mean(axis=2)
    assert (pixels[0, 0] < 0.3) == dark
    for top in range(200, 2000, 300):  # each part of it has something on it
        assert pixels[top : top + 300].std() > 0.02
