"""Reads hpccoutf.txt: HPL's result, STREAM and ping-pong. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from edgeddl.errors import LinpackError
from edgeddl.linpack.figures import Link, Stream
from edgeddl.linpack.hpcc_input import HpccPlan
from edgeddl.linpack.problem import limit_residual

END = "End of HPC Challenge tests."
# The whole of what hpcc does, in its order; HPL is the last.
SECTIONS = (
    "MPIRandomAccess", "StarRandomAccess", "SingleRandomAccess", "MPIRandomAccess_LCG",
    "StarRandomAccess_LCG", "SingleRandomAccess_LCG", "PTRANS", "StarDGEMM", "SingleDGEMM",
    "StarSTREAM", "SingleSTREAM", "MPIFFT", "StarFFT", "SingleFFT", "LatencyBandwidth", "HPL",
    "Summary",
)  # fmt: skip
RESIDUAL = re.compile(r"^\|\|Ax-b\|\|_oo/\(eps.*\)=\s*(\S+)\s\.*\s*(PASSED|FAILED)", re.MULTILINE)
BEGUN = re.compile(r"^Begin of (\w+) section\.", re.MULTILINE)
ENDED = re.compile(r"^End of (\w+) section\.", re.MULTILINE)


@dataclass(frozen=True)
class HpccResult:
    """link: None where one rank had nobody to play with."""

    plan: HpccPlan
    seconds: float
    gflops: float
    residual: float
    passed: bool
    stream: Stream
    link: Link | None


def count_sections(text: str) -> int:
    """How many have ended: what a progress bar can know."""
    return len(ENDED.findall(text))


def parse_output(text: str, plan: HpccPlan) -> HpccResult:
    """The result of the run that was asked for, or LinpackError."""
    if END not in text:
        begun = BEGUN.findall(text)
        where = f"in section {begun[-1]}" if begun else "before its first section"
        raise LinpackError(f"hpcc's output ends {where}: the run did not get to its end")
    summary = _Summary(text)
    came = HpccPlan(*(int(summary.number(f"HPL_{name}")) for name in ("N", "NB", "nprow", "npcol")))
    if came != plan:  # what HPL cannot read or do it replaces by defaults of its own
        raise LinpackError(
            f"HPL was asked for N {plan.n}, NB {plan.block}, grid {plan.rows} x {plan.columns},"
            f" but ran N {came.n}, NB {came.block}, grid {came.rows} x {came.columns}"
        )
    residual, passed = _parse_residual(text)
    return HpccResult(
        plan=plan,
        seconds=summary.positive("HPL_time"),
        gflops=summary.positive("HPL_Tflops") * 1e3,
        residual=residual,
        passed=passed,
        stream=Stream(
            copy=summary.positive("SingleSTREAM_Copy") * 1e9,
            triad=summary.positive("SingleSTREAM_Triad") * 1e9,
        ),
        link=_parse_link(summary) if plan.ranks > 1 else None,
    )


def _parse_residual(text: str) -> tuple[float, bool]:
    found = RESIDUAL.findall(text)
    try:
        (number, word) = found[-1]
        return limit_residual(float(number)), word == "PASSED"
    except (IndexError, ValueError):
        raise LinpackError("hpcc's output has no residual: HPL has solved nothing") from None


def _parse_link(summary: _Summary) -> Link:
    return Link(
        latency_seconds=summary.positive("MaxPingPongLatency_usec") / 1e6,
        bytes_per_second=summary.positive("MinPingPongBandwidth_GBytes") * 1e9,
        mean_latency_seconds=summary.positive("AvgPingPongLatency_usec") / 1e6,
        mean_bytes_per_second=summary.positive("AvgPingPongBandwidth_GBytes") * 1e9,
    )


class _Summary:
    """The names and values at the end of the output."""

    def __init__(self, text: str) -> None:
        part = text.rpartition("Begin of Summary section.")[2]
        pairs = (line.partition("=") for line in part.splitlines())
        self._values = {name: value for name, found, value in pairs if found}

    def number(self, name: str) -> float:
        try:
            value = float(self._values[name])
        except KeyError:
            raise LinpackError(f"hpcc's summary has no {name}") from None
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise LinpackError(f"hpcc's summary: {name}={self._values[name]} is no number")
        return value

    def positive(self, name: str) -> float:
        """hpcc writes -1 or 0 for what it could not measure."""
        value = self.number(name)
        if value <= 0:
            raise LinpackError(f"hpcc's summary: {name}={self._values[name]}: not measured")
        return value
