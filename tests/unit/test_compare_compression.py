"""scripts/compare-compression: evaluation of runs."""

from __future__ import annotations

import pytest
from compare_compression import Run, render, summarise


def run(kind: str, seed: int, accuracy: float) -> Run:
    return {"kind": kind, "seed": seed, "final_accuracy": accuracy, "bytes_sent_per_step": 2e6}


# seeds differ by 20 points, kinds by one and two
RUNS = [run("none", 1, 0.5), run("fp16", 1, 0.49), run("none", 2, 0.7), run("fp16", 2, 0.68)]


def test_kinds_are_compared_seed_by_seed() -> None:
    fp16 = summarise(RUNS)["fp16"]
    assert fp16["difference"] == pytest.approx(-0.015)
    assert fp16["standard_error"] == pytest.approx(0.005)


def test_table_shows_differences_between_kinds() -> None:
    summary = summarise(RUNS)
    assert render(summary, [1, 2]).splitlines() == [
        "                    none    fp16",
        "----------------  ------  ------",
        "seed 1            50.00%  49.00%",
        "seed 2            70.00%  68.00%",
        "mean              60.00%  58.50%",
        "deviation          14.14   13.44",
        "vs none            +0.00   -1.50",
        "standard error      0.00    0.50",
        "MB sent per step   2.000   2.000",
    ]


def test_one_seed_has_no_deviation() -> None:
    summary = summarise([run("none", 1, 0.5), run("fp16", 1, 0.4)])
    assert summary["fp16"]["deviation"] is summary["fp16"]["standard_error"] is None
    assert "deviation              -       -" in render(summary, [1])
