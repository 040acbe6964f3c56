"""Parses hpccoutf.txt (HPL, STREAM and ping-pong); pure functions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from edgeddl.errors import LinpackError
from edgeddl.linpack.figures import Link, Stream
from edgeddl.linpack.hpcc_input import HpccPlan
from edgeddl.linpack.problem import LARGEST_RESIDUAL, limit_residual

END = "End of HPC Challenge tests."
# All sections of hpcc, in their order.
SECTIONS = (
    "MPIRandomAccess", "StarRandomAccess", "SingleRandomAccess", "MPIRandomAccess_LCG",
    "StarRandomAccess_LCG", "SingleRandomAccess_LCG", "PTRANS", "StarDGEMM", "SingleDGEMM",
    "StarSTREAM", "SingleSTREAM", "MPIFFT", "StarFFT", "SingleFFT", "LatencyBandwidth", "HPL",
    "Summary",
)  # fmt: skip
# Plausible seconds, GFLOPS and bytes per second. Values of a damaged file may be outside and would
# overflow in later computations.
SMALLEST, LARGEST = 1e-12, 1e18
RESIDUAL = re.compile(r"^\|\|Ax-b\|\|_oo/\(eps.*\)=\s*(\S+)\s\.*\s*(PASSED|FAILED)", re.MULTILINE)
BEGUN = re.compile(r"^Begin of (\w+) section\.", re.MULTILINE)
ENDED = re.compile(r"^End of (\w+) section\.", re.MULTILINE)


@dataclass(frozen=True)
class HpccResult:
    """The result of an hpcc run; link: None for a single rank."""

    plan: HpccPlan
    seconds: float
    gflops: float
    residual: float
    passed: bool
    stream: Stream
    link: Link | None


def count_sections(text: str) -> int:
    """The number of completed sections, for the progress bar."""
    return len(ENDED.findall(text))


def parse_output(text: str, plan: HpccPlan) -> HpccResult:
    """The result of the requested run; raises LinpackError if the output does not match."""
    if END not in text:
        begun = BEGUN.findall(text)
        where = f"in section {begun[-1]}" if begun else "before its first section"
        raise LinpackError(f"hpcc's output ends {where}: the run is incomplete")
    summary = _Summary(text)
    actual = HpccPlan(
        *(int(summary.number(f"HPL_{name}")) for name in ("N", "NB", "nprow", "npcol"))
    )
    if actual != plan:  # HPL replaces values that it cannot use by its defaults
        raise LinpackError(
            f"expected HPL with N {plan.n}, NB {plan.block}, grid {plan.rows} x {plan.columns},"
            f" but it ran N {actual.n}, NB {actual.block}, grid {actual.rows} x {actual.columns}"
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
        raise LinpackError(
            "hpcc's output contains no residual: HPL did not solve the system"
        ) from None
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
            raise LinpackError(f"hpcc's summary: {name}={self._values[name]} is not a number")
        return value

    def measured(self, name: str, unit: float = 1.0) -> float:
        """A measured value times `unit`; hpcc writes -1 or 0 for failed measurements."""
        value = self.number(name) * unit
        if value <= 0:
            raise LinpackError(f"hpcc's summary: {name}={self._values[name]}: not measured")
        if not SMALLEST <= value <= LARGEST:
            raise LinpackError(f"hpcc's summary: {name}={self._values[name]}: not plausible")
        return value
