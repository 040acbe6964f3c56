"""Rates the speed of a machine or cluster and finds likely causes; pure functions.

The limits are those of a Raspberry Pi 4 at 1.5 GHz with a peak of 24 GFLOPS. Published results are
14 to 16.5 GFLOPS with a tuned BLAS; below 8 the BLAS is untuned or the board is throttled. The
limits are applied as shares of the peak, so they also hold for other clocks and processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeddl.linpack.blas import PACKAGES, REFERENCE
from edgeddl.linpack.figures import Link, NodeFigures

HEALTHY, WARN, SICK, UNKNOWN = "healthy", "warn", "sick", "unknown"
EXIT_SICK = 4

HEALTHY_SHARE = 14 / 24
SICK_SHARE = 8 / 24
# Start-up dominates shorter runs.
SHORTEST_SECONDS = 1.0
# Share of the threads' time. On a nearly idle machine 92 to 99 % were measured.
ALONE_SHARE = 0.8

# Published for all cores of the board. hpcc uses one thread, whose share is unknown: hence half.
BOARD = "Raspberry Pi 4"
BOARD_COPY = 5.4e9
SLOW_MEMORY_SHARE = 0.5

# Published for four boards: 47 to 54 GFLOPS, which is 76 to 87 % of four times 15.5.
PUBLISHED_EFFICIENCY = 0.76
# Chosen slightly below and far below the published value.
HEALTHY_EFFICIENCY = 0.70
SICK_EFFICIENCY = 0.50
# Small problems are dominated by communication; one that fills the memory takes minutes.
SHORTEST_JOINT_SECONDS = 30.0
# Gigabit Ethernet with MPI: 113 MB/s and 0.1 ms. A link at 100 Mbit/s reaches 11 MB/s.
GIGABIT_BYTES = 113e6
SLOW_LINK_BYTES = 0.7 * GIGABIT_BYTES
SICK_LINK_BYTES = 0.35 * GIGABIT_BYTES
SLOW_LATENCY_SECONDS = 0.5e-3


@dataclass(frozen=True)
class Verdict:
    """A rating with the likely causes, or with the reason for an unknown rating."""

    rating: str
    causes: tuple[str, ...] = ()


def judge_node(figures: NodeFigures, peak_gflops: float | None, cpu: str) -> Verdict:
    """Rate one machine by its share of the peak."""
    if not figures.passed:
        return Verdict(SICK, (_wrong_result(figures.residual),))
    if figures.seconds < SHORTEST_SECONDS:
        return Verdict(UNKNOWN, (f"a run of {figures.seconds:.2f} s is too short for a rating",))
    causes = _causes(figures, cpu)
    if peak_gflops is None:
        unknown = f"unknown peak: {cpu} or its clock is not in the table of processors"
        return Verdict(WARN if causes else UNKNOWN, (*causes, unknown))
    rating = _rate(figures.gflops / peak_gflops, HEALTHY_SHARE, SICK_SHARE)
    if rating == SICK and figures.blas != REFERENCE and not _was_alone(figures):
        rating = WARN  # other programs took the time, so the machine may be fine
    if rating != HEALTHY and not causes:
        causes = ("no cause found: check cooling, power supply and other programs",)
    return Verdict(WARN if rating == HEALTHY and causes else rating, causes)


def _was_alone(figures: NodeFigures) -> bool:
    return figures.processor_share is None or figures.processor_share >= ALONE_SHARE


def _rate(share: float, healthy: float, sick: float) -> str:
    if share >= healthy:
        return HEALTHY
    return WARN if share >= sick else SICK


def _wrong_result(residual: float) -> str:
    return f"wrong result, residual {residual:.3g}: check memory, overclocking and BLAS"


def _causes(figures: NodeFigures, cpu: str) -> tuple[str, ...]:
    """Everything that would make this machine slow."""
    causes = []
    if figures.blas == REFERENCE:
        causes.append(f"untuned BLAS (reference): sudo apt install {PACKAGES}")
    if figures.throttled:
        causes.append("throttled during the run: check cooling and power supply")
    if not _was_alone(figures):
        causes.append(
            f"busy machine: LINPACK got {figures.processor_share:.0%} of its threads' time; other"
            " programs or a CPU limit took the rest"
        )
    if figures.stream and BOARD in cpu and figures.stream.copy < SLOW_MEMORY_SHARE * BOARD_COPY:
        causes.append(f"slow memory: STREAM copy reaches {figures.stream.copy / 1e9:.1f} GB/s")
    return tuple(causes)


def judge_link(link: Link) -> Verdict:
    """Compare the worst pair of nodes with gigabit Ethernet."""
    rating = _rate(link.bytes_per_second, SLOW_LINK_BYTES, SICK_LINK_BYTES)
    causes = []
    if rating != HEALTHY:
        causes.append(
            f"slow link: ping-pong reaches {link.bytes_per_second / 1e6:.0f} MB/s"
            f" (gigabit Ethernet: {GIGABIT_BYTES / 1e6:.0f})"
        )
    if link.latency_seconds > SLOW_LATENCY_SECONDS:
        causes.append(f"slow link: ping-pong takes {link.latency_seconds * 1e3:.1f} ms one way")
    return Verdict(WARN if causes and rating == HEALTHY else rating, tuple(causes))


def judge_efficiency(efficiency: float, seconds: float) -> Verdict:
    """Compare the joint run with the sum of the nodes alone."""
    if seconds < SHORTEST_JOINT_SECONDS:
        why = f"efficiency: a run of {seconds:.1f} s is too short for a rating"
        return Verdict(UNKNOWN, (why,))
    rating = _rate(efficiency, HEALTHY_EFFICIENCY, SICK_EFFICIENCY)
    low = f"efficiency {efficiency:.0%} (published: {PUBLISHED_EFFICIENCY:.0%})"
    return Verdict(rating, () if rating == HEALTHY else (low,))


def judge_result(residual: float, passed: bool) -> Verdict:
    return Verdict(HEALTHY) if passed else Verdict(SICK, (_wrong_result(residual),))


def combine(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst rating with all causes; unknown ranks between healthy and warn."""
    order = (HEALTHY, UNKNOWN, WARN, SICK)
    rating = max((one.rating for one in verdicts), key=order.index)
    return Verdict(rating, tuple(cause for one in verdicts for cause in one.causes))
