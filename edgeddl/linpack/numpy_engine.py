"""LINPACK with the LAPACK of NumPy; needs no other software."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

from edgeddl import machine
from edgeddl.linpack.figures import NodeFigures
from edgeddl.linpack.monitor import SensorMonitor
from edgeddl.linpack.problem import LARGEST_RESIDUAL, count_flops
from edgeddl.linpack.process import check_end, running
from edgeddl.log import logger
from edgeddl.terminal import ProgressBar

# The system, and LAPACK's copy of it for the factors.
MATRICES = 2


@dataclass(frozen=True)
class Task:
    n: int
    repeats: int
    threads: int


class EstimatedBar:
    """LAPACK reports no progress, so the bar is estimated from the speed measured so far."""

    def __init__(self, task: Task) -> None:
        self._solve_gflop = count_flops(task.n) / 1e9
        self._gflops = 0.0
        self._done = 0
        self._since = time.perf_counter()
        self._bar = ProgressBar(
            total=100, desc=f"N = {task.n:,}, estimated", leave=False,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
        )  # fmt: skip
        self._repeats = task.repeats

    def set_speed(self, gflops: float) -> None:
        self._gflops = gflops
        self._since = time.perf_counter()

    def solved(self, seconds: float) -> None:
        self._done += 1
        self.set_speed(self._solve_gflop / seconds)
        self.show()

    def show(self) -> None:
        elapsed = time.perf_counter() - self._since
        # A solve that takes longer than estimated stays at 99 %.
        part = min(elapsed * self._gflops / self._solve_gflop, 0.99)
        share = min((self._done + part) / self._repeats, 1.0)
        self._bar.update(max(round(100 * share) - self._bar.n, 0))

    def close(self) -> None:
        self._bar.close()


def run_numpy(task: Task) -> NodeFigures:
    """Run all repeats in one process."""
    threads = dict.fromkeys(machine.THREAD_VARIABLES, str(task.threads))
    command = [sys.executable, "-m", "edgeddl.linpack.solve", str(task.n), str(task.repeats)]
    bar = EstimatedBar(task)
    try:
        with SensorMonitor(bar.show) as monitor, running(command, os.environ | threads) as process:
            blas, solves = _follow(process, task, bar)
    finally:
        bar.close()
    return _summarise(task, blas, solves, monitor)


def _follow(process: Any, task: Task, bar: EstimatedBar) -> tuple[str, list[dict[str, float]]]:
    """Read the results that the process prints."""
    blas, solves, output = "", [], []
    for line in process.stdout:
        output.append(line)
        figures = json.loads(line) if line.startswith("{") else {}
        if "blas" in figures:
            blas = figures["blas"]
            bar.set_speed(figures["warm_up_gflops"])
            seconds = task.repeats * count_flops(task.n) / figures["warm_up_gflops"] / 1e9
            logger.info("solving %s equations: about %.0f s", f"{task.n:,}", seconds)
        elif figures:
            solves.append(figures)
            bar.solved(figures["seconds"])
    check_end(f"solving {task.n:,} equations", process, output)
    return blas, solves


def _summarise(
    task: Task, blas: str, solves: list[dict[str, float]], monitor: SensorMonitor
) -> NodeFigures:
    best = min(solves, key=lambda one: one["seconds"])
    residual = max(one["residual"] for one in solves)
    median = statistics.median(one["seconds"] for one in solves)
    return NodeFigures(
        engine="numpy",
        blas=blas,
        threads=task.threads,
        n=task.n,
        seconds=best["seconds"],
        gflops=count_flops(task.n) / best["seconds"] / 1e9,
        median_gflops=count_flops(task.n) / median / 1e9,
        residual=residual,
        passed=residual < LARGEST_RESIDUAL,
        processor_share=best["processor_seconds"] / best["seconds"] / task.threads,
        throttled=monitor.throttled,
        hottest_celsius=monitor.hottest_celsius,
    )
