"""Rivals take turns, and what their times say."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from baselines.process import Worker, WorkerFailed

from bench_kernels.progress import Progress
from bench_kernels.systems import EDGEDDL

WARM_UP_TURNS = 2
LEAST_ROUNDS = 3
# A slow worker gets fewer turns than asked for, and a single turn to warm up, rather than spend
# more than this on one measurement.
BUDGET_SECONDS = 60.0
# Thread pools poll for work for some time after a step (OpenBLAS: 2**26 cycles) and would take the
# next worker's cores.
PAUSE_SECONDS = 0.05

Seconds = dict[str, list[float]]


def turns_at_most(workers: int, rounds: int) -> int:
    """How many turns one measurement takes."""
    return workers * (WARM_UP_TURNS + rounds)


def alternate(
    workers: Iterable[Worker],
    case: Mapping[str, Any],
    rounds: int,
    progress: Progress,
    *,
    turn_seconds: float = 0.0,
) -> Seconds:
    """Seconds of a call, by worker and round: in a round everyone takes one turn.

    A turn is one call, or as many as fit into `turn_seconds`. A worker that cannot take the case at
    all, for want of memory or of instructions this processor does not have, takes no part.
    """
    warm: dict[Worker, float] = {}
    for worker in workers:
        try:
            worker.ask("prepare", **case)
            warm[worker] = _warm_up(worker, progress)
        except WorkerFailed as failure:
            if worker.name == EDGEDDL:
                raise
            progress.say_once([str(failure)])
            progress.leave_out(rounds)
    turns = {worker: _count_turns(seconds, rounds) for worker, seconds in warm.items()}
    calls = {worker: max(round(turn_seconds / seconds), 1) for worker, seconds in warm.items()}
    progress.leave_out(sum(rounds - count for count in turns.values()))
    seconds: Seconds = {worker.name: [] for worker in warm}
    for index in range(rounds):
        for worker in warm:
            if index < turns[worker]:
                seconds[worker.name].append(_take_turn(worker, calls[worker], progress))
    return seconds


def _warm_up(worker: Worker, progress: Progress) -> float:
    """Seconds of a call once memory has been touched and threads are there."""
    seconds = _take_turn(worker, 1, progress)
    for _ in range(1, WARM_UP_TURNS):
        if seconds > BUDGET_SECONDS / LEAST_ROUNDS:
            progress.leave_out(1)
        else:
            seconds = _take_turn(worker, 1, progress)
    return seconds


def _count_turns(warm_seconds: float, rounds: int) -> int:
    return min(max(int(BUDGET_SECONDS / warm_seconds), LEAST_ROUNDS), rounds)


def _take_turn(worker: Worker, calls: int, progress: Progress) -> float:
    progress.show_turn(worker.name)
    time.sleep(PAUSE_SECONDS)
    return worker.ask("step", calls=calls)


def compare(seconds: Mapping[str, list[float]], ours: str, theirs: str) -> dict[str, float]:
    """How many times as fast as theirs ours is.

    The median of the ratios within each round does not see what slows both for a while; the ratio
    of the two minima is what is left when nothing disturbs.
    """
    pairs = zip(seconds[ours], seconds[theirs], strict=False)  # the slower one has fewer turns
    return {
        "median": median(their / our for our, their in pairs),
        "of_minima": min(seconds[theirs]) / min(seconds[ours]),
    }


def fastest(seconds: Mapping[str, list[float]], names: Iterable[str]) -> str | None:
    """Which of the names has the lowest median; None if none of them was measured."""
    measured = [name for name in names if name in seconds]
    return min(measured, key=lambda name: median(seconds[name]), default=None)
