"""Alternates between workers and compares their times."""

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
# A slow worker gets fewer turns, and a single warm-up turn, so that one measurement does not take
# longer than this.
BUDGET_SECONDS = 60.0
# After a step, thread pools busy-wait for a while (OpenBLAS: 2**26 cycles) and would compete with
# the next worker for its cores.
PAUSE_SECONDS = 0.05

Seconds = dict[str, list[float]]


def turns_at_most(workers: int, rounds: int) -> int:
    """Return the maximum number of turns of one measurement."""
    return workers * (WARM_UP_TURNS + rounds)


def alternate(
    workers: Iterable[Worker],
    case: Mapping[str, Any],
    rounds: int,
    progress: Progress,
    *,
    turn_seconds: float = 0.0,
) -> Seconds:
    """Return seconds per call, by worker and round. Each worker has one turn per round.

    A turn is one call, or as many as fit into `turn_seconds`. A worker that cannot run the case is
    skipped, for example for lack of memory or CPU instructions.
    """
    warm: dict[Worker, float] = {}
    for worker in workers:
        try:
            worker.request("prepare", **case)
            warm[worker] = _warm_up(worker, progress)
        except WorkerFailed as failure:
            if worker.name == EDGEDDL:
                raise
            progress.print_once([str(failure)])
            progress.skip(rounds)
    turns = {worker: _count_turns(seconds, rounds) for worker, seconds in warm.items()}
    calls = {worker: max(round(turn_seconds / seconds), 1) for worker, seconds in warm.items()}
    progress.skip(sum(rounds - count for count in turns.values()))
    seconds: Seconds = {worker.name: [] for worker in warm}
    for index in range(rounds):
        for worker in warm:
            if index < turns[worker]:
                seconds[worker.name].append(_take_turn(worker, calls[worker], progress))
    return seconds


def _warm_up(worker: Worker, progress: Progress) -> float:
    """Return the seconds of a call after memory is allocated and threads are started."""
    seconds = _take_turn(worker, 1, progress)
    for _ in range(1, WARM_UP_TURNS):
        if seconds > BUDGET_SECONDS / LEAST_ROUNDS:
            progress.skip(1)
        else:
            seconds = _take_turn(worker, 1, progress)
    return seconds


def _count_turns(warm_seconds: float, rounds: int) -> int:
    return min(max(int(BUDGET_SECONDS / warm_seconds), LEAST_ROUNDS), rounds)


def _take_turn(worker: Worker, calls: int, progress: Progress) -> float:
    progress.show_turn(worker.name)
    time.sleep(PAUSE_SECONDS)
    return worker.request("step", calls=calls)


def compare(seconds: Mapping[str, list[float]], ours: str, theirs: str) -> dict[str, float]:
    """Return our speed relative to theirs.

    The median of the ratios within each round cancels disturbances that last for a while. The ratio
    of the minima is the result without disturbances.
    """
    pairs = zip(seconds[ours], seconds[theirs], strict=False)  # the slower one may have fewer turns
    return {
        "median": median(their / our for our, their in pairs),
        "of_minima": min(seconds[theirs]) / min(seconds[ours]),
    }


def fastest(seconds: Mapping[str, list[float]], names: Iterable[str]) -> str | None:
    """Return the name with the lowest median; None if none was measured."""
    measured = [name for name in names if name in seconds]
    return min(measured, key=lambda name: median(seconds[name]), default=None)
