"""Reads hpccoutf.txt: HPL's result, STREAM and ping-pong. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from edgeddl.errors import LinpackError
from edgeddl.linpack.figures import Link, Stream
from edgeddl.linpack.hpcc_input import HpccPlan
from edgeddl.linpack.problem import LARGEST_RESIDUAL, limit_residual

END = "End of HPC Challenge tests."
# The whole of what hpcc does, in its order; HPL is the last.
SECTIONS = (
    "MPIRandomAccess", "StarRandomAccess", "SingleRandomAccess", "MPIRandomAccess_LCG",
    "StarRandomAccess_LCG", "SingleRandomAccess_LCG", "PTRANS", "StarDGEMM", "SingleDGEMM",
    "StarSTREAM", "SingleSTREAM", "MPIFFT", "StarFFT", "SingleFFT", "LatencyBandwidth", "HPL",
    "Summary",
)  # fmt: skip
# No machine is outside of these, in seconds, GFLOP/s or bytes a second; a damaged file is, and its
# figures overflow when they are computed with.
SMALLEST, LARGEST = 1e-12, 1e18
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
        seconds=summary.measured("HPL_time"),
        gflops=summary.measured("HPL_Tflops", unit=1e3),
        residual=residual,
        passed=passed,
        stream=Stream(
            copy=summary.measured("SingleSTREAM_Copy", unit=1e9),
            triad=summary.measured("SingleSTREAM_Triad", unit=1e9),
        ),
        link=_parse_link(summary) if plan.ranks > 1 else None,
    )


def _parse_residual(text: str) -> tuple[float, bool]:
    found = RESIDUAL.findall(text)
    try:
        (number, word) = found[-1]
        residual, passed = limit_residual(float(number)), word == "PASSED"
    except (IndexError, ValueError):
        raise LinpackError("hpcc's output has no residual: HPL has solved nothing") from None
    if passed and residual > LARGEST_RESIDUAL:
        raise LinpackError(f"hpcc's output is damaged: a residual of {number} cannot have passed")
    return residual, passed


def _parse_link(summary: _Summary) -> Link:
    return Link(
        latency_seconds=summary.measured("MaxPingPongLatency_usec", unit=1e-6),
        bytes_per_second=summary.measured("MinPingPongBandwidth_GBytes", unit=1e9),
        mean_latency_seconds=summary.measured("AvgPingPongLatency_usec", unit=1e-6),
        mean_bytes_per_second=summary.measured("AvgPingPongBandwidth_GBytes", unit=1e9),
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

    def measured(self, name: str, unit: float = 1.0) -> float:
        """A figure in units of its own; hpcc writes -1 or 0 for what it could not measure."""
        value = self.number(name) * unit
        if value <= 0:
            raise LinpackError(f"hpcc's summary: {name}={self._values[name]}: not measured")
        if not SMALLEST <= value <= LARGEST:
            raise LinpackError(f"hpcc's summary: {name}={self._values[name]}: not plausible")
        return value
