"""python -m edgeddl bench exporter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeddl.__main__ import main
from edgeddl.measure.exporter import RATES, Block, render
from tests.support import REPOSITORY


def test_a_real_run_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    options = ["--model", "tests.models:TinyNet", "--batch-size", "4", "--json"]
    file = tmp_path / "figures.json"
    assert main(["bench", "exporter", "--rounds", "1", "--seconds", "3", *options, str(file)]) == 0
    assert "a scrape takes" in capsys.readouterr().out
    blocks = json.loads(file.read_text())
    assert [block["rate"] for block in blocks] == list(RATES)
    assert all(block["steps"] > 0 and block["step_seconds"] > 0 for block in blocks)
    assert not blocks[0]["answer_seconds"] and blocks[2]["answer_seconds"]


def test_the_cost_of_a_scrape_is_the_added_processor_time() -> None:
    none = Block(0, steps=10, step_seconds=0.5, processor_seconds=0.4)
    one = Block(1, 10, 0.5, 0.4, [0.002])
    many = Block(
        20, steps=10, step_seconds=0.6, processor_seconds=0.41, answer_seconds=[0.01] * 100
    )
    text = render([none, one, many] * 3)
    assert (
        "a scrape takes 1.00 ms of processor time: at one scrape per second, 0.10% of one core"
        in text
    )
    assert "1.2000" in text and "1.0250" in text


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (["--rounds", "0"], "--rounds and --seconds must be above 0"),
        (["--seconds", "-1"], "--rounds and --seconds must be above 0"),
        (["--json", "/proc/nowhere/figures.json"], "cannot be written"),
    ],
)
def test_wrong_options(
    option: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "exporter", *option]) == 2
    assert complaint in capsys.readouterr().err


def test_a_run_that_fails_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "exporter", "--model", "no.such:model"]) == 2
    assert "the measured training run has ended" in capsys.readouterr().err
