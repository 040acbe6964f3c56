"""`mpirun -np N python -m edgeddl bench allreduce` as its user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from edgeddl.__main__ import main
from edgeddl.registry import ALGORITHMS

pytestmark = pytest.mark.mpi

BENCH = ("-m", "edgeddl", "bench", "allreduce")


def test_a_table_and_its_figures(
    mpirun: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    figures = tmp_path / "figures.json"
    done = mpirun(3, *BENCH, "--sizes", "64K,1M", "--repeats", "2", "--json", figures)
    assert done.returncode == 0, done.stderr
    assert "bus MB/s" in done.stdout and "of line rate" not in done.stdout  # one host has no link
    assert "\r" not in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr
    assert "predicted" in done.stdout
    content = json.loads(figures.read_text())
    assert content["ranks"] == 3
    cases = [(row["size_bytes"], row["algorithm"]) for row in content["rows"]]
    assert cases == [(size, name) for size in (65536, 1048576) for name in ALGORITHMS]
    for row in content["rows"]:
        assert 0 < row["fastest_seconds"] <= row["seconds"]
        assert row["bus_bytes_per_second"] > 0 and row["line_rate_share"] is None


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--sizes", "64X", "expected a size such as 64K"),
        ("--algorithms", "ring,tree", "'tree' is not one of"),
        ("--repeats", "0", "must be above 0"),
    ],
)
def test_a_wrong_option_is_said_once(
    mpirun: Callable[..., CompletedProcess[str]], option: str, value: str, complaint: str
) -> None:
    done = mpirun(2, *BENCH, option, value)
    assert done.returncode == 2
    assert done.stderr.count(complaint) == 1
    assert "Traceback" not in done.stderr


def test_figures_that_cannot_be_written_end_all_ranks(
    mpirun: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    done = mpirun(2, *BENCH, "--sizes", "64K", "--repeats", "1", "--json", tmp_path)
    assert done.returncode == 2
    assert f"--json {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_rank_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "allreduce"]) == 2
    assert "bench allreduce needs at least two ranks" in capsys.readouterr().err
