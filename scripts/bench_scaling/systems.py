"""The measured systems: their training commands, and the figures in their reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import harmonic_mean, mean
from typing import Any, Protocol

from baselines.process import SCRIPTS

from bench_scaling.launcher import Launcher, free_port
from bench_scaling.plan import CHAINERMN, EDGEDDL, TORCH, Case, Steps
from edgeddl import machine
from edgeddl.comm.communicator import optimal_bytes
from edgeddl.data.shapes import COUNTS

NEVER = str(10**9)  # more steps or epochs than any run has


class BadReport(Exception):
    """A run exited successfully, but its report is not that of a training run."""


@dataclass(frozen=True)
class Figures:
    """The key figures of a run.

    step_seconds: mean over the measured steps, of the slowest rank
    wait_seconds: part of it in which a rank only waited for gradients, mean over ranks
    sent_bytes: bytes that a rank sends per step, assuming a bandwidth-optimal all-reduce
    ranks: the full reports of all ranks
    """

    step_seconds: float
    wait_seconds: float
    sent_bytes: float
    ranks: list[dict[str, Any]]


def join_figures(apart: Sequence[Figures]) -> Figures:
    """Combine the figures of nodes that train independently, with their mean step rate."""
    if len(apart) == 1:
        return apart[0]
    return Figures(
        step_seconds=harmonic_mean(one.step_seconds for one in apart),
        wait_seconds=mean(one.wait_seconds for one in apart),
        sent_bytes=0.0,
        ranks=[rank for one in apart for rank in one.ranks],
    )


class System(Protocol):
    """A training system."""

    def command(self, case: Case, steps: Steps, report: Path) -> list[str]:
        """Return the command that every rank runs; one of them writes the report."""

    def read(self, report: Path) -> Figures:
        """Read the figures of a finished run."""


class Edgeddl:
    """edgeddl's own trainer, started as a user would."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def command(self, case: Case, steps: Steps, report: Path) -> list[str]:
        options = {
            "dataset": "shapes",
            "limit-train": _whole_steps(case, steps),
            "limit-test": case.nodes,  # the final evaluation: one image per rank
            "stem": case.stem,
            "batch-size": case.batch,
            "max-steps": steps.total,
            "compression": case.compression,
            "balance": case.balance,
            "threads": self._threads,
            "epochs": NEVER,
            "eval-every": NEVER,
            "checkpoint-every": NEVER,
            "lr": 0.01,
            "lr-scaling": "none",
            "schedule": "constant",
            "progress": "none",
            "run-dir": report.with_name("run"),
            "summary": report,
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        return [sys.executable, "-m", "edgeddl.train", *arguments]

    def read(self, report: Path) -> Figures:
        summary = json.loads(report.read_text())
        ranks, measured = summary["ranks"], summary["measured_steps"]
        waits = [rank["phase_seconds"]["allreduce_wait"] for rank in ranks]
        return Figures(
            step_seconds=max(rank["step_seconds"] for rank in ranks) / measured,
            wait_seconds=mean(waits) / measured,
            sent_bytes=ranks[0]["bytes_sent"] / summary["steps"],
            ranks=ranks,
        )


def _whole_steps(case: Case, steps: Steps) -> int:
    """Return a number of images with which all steps of an epoch have the same size."""
    in_a_step = case.batch * case.nodes
    return in_a_step * min(steps.total, COUNTS["train"] // in_a_step)


class Baseline:
    """A baseline, which trains in a worker of this package."""

    def __init__(self, python: Path, module: str, threads: int) -> None:
        self._python, self._module, self._threads = python, module, threads

    def command(self, case: Case, steps: Steps, report: Path) -> list[str]:
        options = {
            "stem": case.stem,
            "batch": case.batch,
            "warm-up": steps.warm_up,
            "steps": steps.measured,
            "output": report,
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        # by env: mpirun does not export variables to other hosts
        variables = [f"{name}={value}" for name, value in self.variables(case).items()]
        return ["env", *variables, str(self._python), "-m", self._module, *arguments]

    def variables(self, case: Case) -> dict[str, str]:
        """Return the environment variables of a worker."""
        limits = dict.fromkeys(machine.THREAD_VARIABLES, str(self._threads))
        return {"PYTHONPATH": str(SCRIPTS), **limits}

    def read(self, report: Path) -> Figures:
        ranks = json.loads(report.read_text())["ranks"]
        if len({rank["parameters_checksum"] for rank in ranks}) > 1:
            raise BadReport("the ranks ended with different parameters")
        return Figures(
            step_seconds=max(mean(rank["step_seconds"]) for rank in ranks),
            wait_seconds=mean(mean(rank["wait_seconds"]) for rank in ranks),
            sent_bytes=optimal_bytes(ranks[0]["gradient_bytes"], len(ranks)),
            ranks=ranks,
        )


class Torch(Baseline):
    """PyTorch, whose ranks rendezvous at a port of the first node."""

    def __init__(self, python: Path, threads: int, launcher: Launcher) -> None:
        super().__init__(python, "bench_scaling.torch_worker", threads)
        self._launcher = launcher

    def variables(self, case: Case) -> dict[str, str]:
        # a single rank may run on any node
        rendezvous = self._launcher.address if case.nodes > 1 else "127.0.0.1"
        return super().variables(case) | {
            "MASTER_ADDR": rendezvous,
            "MASTER_PORT": str(free_port()),
            "GLOO_SOCKET_IFNAME": self._launcher.interface,
        }


def make_systems(launcher: Launcher, threads: int, torch_python: Path | None) -> dict[str, System]:
    """Return the installed systems by name."""
    own_python = Path(sys.executable)
    systems: dict[str, System] = {
        EDGEDDL: Edgeddl(threads),
        CHAINERMN: Baseline(own_python, "bench_scaling.chainermn_worker", threads),
    }
    if torch_python is not None:
        systems[TORCH] = Torch(torch_python.absolute(), threads, launcher)
    return systems
