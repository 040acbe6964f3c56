"""Commands and reports of each system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_scaling.plan import Steps
from bench_scaling.systems import BadReport, Baseline, Edgeddl, Figures

from tests.unit.bench_scaling.support import case


def test_all_steps_of_edgeddl_have_the_same_size(tmp_path: Path) -> None:
    def images(batch: int, steps: Steps) -> int:
        command = Edgeddl(1).command(case(4, batch=batch), steps, tmp_path / "report.json")
        (option,) = (word for word in command if word.startswith("--limit-train="))
        return int(option.partition("=")[2])

    assert images(8, Steps(2, 3)) == 8 * 4 * 5
    assert images(128, Steps(2, 100)) == 128 * 4 * 19  # all images


def test_ranks_with_different_parameters_are_an_error(tmp_path: Path) -> None:
    rank = {"step_seconds": [1.0], "wait_seconds": [0.5], "gradient_bytes": 8}
    report = tmp_path / "report.json"
    baseline = Baseline(Path("python"), "module", threads=1)
    same = [rank | {"parameters_checksum": 1}] * 2
    report.write_text(json.dumps({"ranks": same}))
    assert baseline.read(report) == Figures(1.0, 0.5, 8, ranks=same)
    report.write_text(json.dumps({"ranks": [same[0], rank | {"parameters_checksum": 2}]}))
    with pytest.raises(BadReport, match="different parameters"):
        baseline.read(report)
