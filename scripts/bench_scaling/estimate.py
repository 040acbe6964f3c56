"""Estimates the duration of a run from earlier runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from bench_scaling.plan import CHAINERMN, EDGEDDL, TORCH, Case, Steps
from bench_scaling.results import Measurement

# Rough values for the first run of a system, on a node with a third to a half of an x86-64 core and
# with the CIFAR stem.
GUESSED_IMAGES_PER_SECOND = {EDGEDDL: 20.0, TORCH: 8.0, CHAINERMN: 3.0}
GUESSED_STEM_FACTOR = {"cifar": 1.0, "imagenet": 6.0}
GUESSED_START_SECONDS = 10.0
# measured: an all-reduce of ResNet-18's gradients over gigabit Ethernet
GUESSED_SUM_SECONDS = 0.8


def estimate_step(case: Case, measurements: Iterable[Measurement]) -> float:
    """Estimate the step time from the same case, or from the nearest one that was measured."""
    kin = [one for one in measurements if _is_kin(one.run.case, case)]
    same = [one.figures.step_seconds for one in kin if one.run.case == case]
    if same:
        return median(same)
    sum_seconds = GUESSED_SUM_SECONDS if case.nodes > 1 and not case.apart else 0.0
    if not kin:
        speed = GUESSED_IMAGES_PER_SECOND[case.system] * GUESSED_STEM_FACTOR[case.stem]
        return case.batch / speed + sum_seconds
    nearest = min(kin, key=lambda one: _distance(one.run.case, case))
    figures = nearest.figures
    busy_seconds = figures.step_seconds - figures.wait_seconds
    sends = nearest.run.case.nodes > 1 and not nearest.run.case.apart
    wait_seconds = figures.wait_seconds if sends else sum_seconds
    return busy_seconds * case.batch / nearest.run.case.batch + wait_seconds


def estimate_run(case: Case, steps: Steps, measurements: Iterable[Measurement]) -> float:
    """Estimate the duration of a whole run, including start-up and shut-down."""
    known = list(measurements)
    beside_steps = [
        one.wall_seconds - one.steps.total * one.figures.step_seconds
        for one in known
        if one.run.case.system == case.system
    ]
    start = median(beside_steps) if beside_steps else GUESSED_START_SECONDS
    return max(start, 0.0) + steps.total * estimate_step(case, known)


def _is_kin(one: Case, other: Case) -> bool:
    return (one.system, one.stem) == (other.system, other.stem)


def _distance(one: Case, other: Case) -> tuple[float, bool, int]:
    """Compare by batch first: computing is most of a step."""
    apart = one.apart != other.apart
    return abs(math.log(one.batch / other.batch)), apart, abs(one.nodes - other.nodes)
