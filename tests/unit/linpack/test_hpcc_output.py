"""Parsing the output of real hpcc runs (Debian's hpcc 1.5.0), complete and damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgeddl.errors import LinpackError
from edgeddl.linpack.hpcc_input import HpccPlan
from edgeddl.linpack.hpcc_output import SECTIONS, count_sections, parse_output
from tests.support import REPOSITORY

RECORDED = REPOSITORY / "tests/fixtures/hpcc"
ONE, TWO = HpccPlan(2000, 80, 1, 1), HpccPlan(2000, 80, 1, 2)


def recorded(name: str) -> str:
    return Path(RECORDED / name).read_text()


def test_two_ranks() -> None:
    result = parse_output(recorded("two_ranks.txt"), TWO)
    assert result.gflops == pytest.approx(18.9875)
    assert result.seconds == pytest.approx(0.281202)
    assert result.residual == pytest.approx(0.0030191)
    assert result.passed
    assert result.stream.copy == pytest.approx(66.3106e9)
    assert result.stream.triad == pytest.approx(51.7029e9)
    assert result.link is not None
    assert result.link.latency_seconds == pytest.approx(0.399222e-6)
    assert result.link.bytes_per_second == pytest.approx(10.4559e9)
    assert result.link.mean_bytes_per_second == pytest.approx(10.6729e9)


def test_one_rank_has_no_link() -> None:
    result = parse_output(recorded("one_rank.txt"), ONE)
    assert result.gflops == pytest.approx(30.9414)
    assert result.link is None


def test_sections_are_counted_as_they_end() -> None:
    text = recorded("one_rank.txt")
    assert count_sections(text) == len(SECTIONS)
    assert count_sections(text.partition("Begin of StarDGEMM")[0]) == SECTIONS.index("StarDGEMM")
    assert count_sections("") == 0


def test_hpl_that_ran_another_problem() -> None:
    """HPL had too few ranks for the grid and used its defaults."""
    with pytest.raises(LinpackError, match=r"expected HPL with N 2000.*2 x 2, but it ran N 2560"):
        parse_output(recorded("grid_refused.txt"), HpccPlan(2000, 80, 2, 2))


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (lambda text: "", "before its first section"),
        (lambda text: text[: text.index("Begin of HPL") + 900], "in section HPL"),
        (lambda text: text[: text.index("MPIFFT_N=")], "in section Summary"),
        (lambda text: text.replace("HPL_Tflops=", "HPL_Xflops="), "no HPL_Tflops"),
        (lambda text: text.replace("HPL_time=0.2", "HPL_time=x"), "x81202 is not a number"),
        (lambda text: text.replace("HPL_Tflops=0.0", "HPL_Tflops=nan#"), "is not a number"),
        (lambda text: text.replace("......", "----"), "no residual"),
        (lambda text: text.replace("Usec=", "=").replace("MaxPingPongLatency_usec=0.399222",
         "MaxPingPongLatency_usec=-1"), "MaxPingPongLatency_usec=-1: not measured"),
    ],
)  # fmt: skip
def test_broken_output_is_an_error(broken, complaint: str) -> None:
    with pytest.raises(LinpackError, match=complaint):
        parse_output(broken(recorded("two_ranks.txt")), TWO)


@pytest.mark.parametrize(("said", "residual"), [("31.4", 31.4), ("-nan", 1e9), ("inf", 1e9)])
def test_a_failed_residual_is_a_result_not_an_error(said: str, residual: float) -> None:
    text = recorded("two_ranks.txt").replace("0.0030191 ...... PASSED", f"{said} ...... FAILED")
    result = parse_output(text, TWO)
    assert (result.residual, result.passed) == (residual, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HPL_Tflops", "1e306"),  # infinite as GFLOP/s
        ("HPL_time", "1e300"),
        ("HPL_time", "1e-300"),  # figures divided by it are infinite
        ("SingleSTREAM_Copy", "1e300"),
        ("SingleSTREAM_Triad", "9e299"),
        ("MaxPingPongLatency_usec", "1e-320"),  # none at all in seconds
        ("AvgPingPongBandwidth_GBytes", "1e308"),
    ],
)
def test_figures_that_overflow_are_rejected(name: str, value: str) -> None:
    text = re.sub(rf"^{name}=.*$", f"{name}={value}", recorded("two_ranks.txt"), flags=re.MULTILINE)
    with pytest.raises(LinpackError, match=rf"{name}={value}: not (plausible|measured)"):
        parse_output(text, TWO)


@pytest.mark.parametrize("said", ["inf", "-inf", "nan", "-1.0", "1e300"])
def test_a_residual_that_cannot_have_passed(said: str) -> None:
    text = recorded("two_ranks.txt").replace("0.0030191 ...... PASSED", f"{said} ...... PASSED")
    with pytest.raises(LinpackError, match=f"a residual of {said} cannot have passed"):
        parse_output(text, TWO)
