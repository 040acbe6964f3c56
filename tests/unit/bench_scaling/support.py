"""Cases and measurements for the tests."""

from __future__ import annotations

from bench_scaling.plan import Case, Run, Steps
from bench_scaling.results import Measurement
from bench_scaling.systems import Figures


def link_mbit(nodes: int) -> float:
    """Return 100 MB/s in Mbit/s."""
    return 800.0


def case(nodes: int, *, system: str = "edgeddl", compression: str = "none", batch: int = 8) -> Case:
    return Case(system, compression, "cifar", batch, nodes)


def measurement(
    of: Case,
    step_seconds: float,
    *,
    wait_seconds: float = 0.0,
    sent_bytes: float = 0.0,
    repeat: int = 0,
    start_seconds: float = 4.0,
) -> Measurement:
    steps = Steps(2, 3)
    figures = Figures(step_seconds, wait_seconds, sent_bytes, ranks=[])
    wall_seconds = start_seconds + steps.total * step_seconds
    return Measurement(Run(of, repeat), steps, figures, wall_seconds)
