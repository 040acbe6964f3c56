"""Makes the runs one after the other and saves each result immediately."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_scaling.estimate import estimate_run, estimate_step
from bench_scaling.launcher import Launcher, last_lines
from bench_scaling.plan import Case, Run, Steps, plan_steps
from bench_scaling.progress import Progress
from bench_scaling.results import Failure, Measurement, Results
from bench_scaling.systems import BadReport, System, join_figures

REPORTED_LINES = 25  # the end of a traceback, and what mpirun adds to it


class RunFailed(Exception):
    """A run failed; the message is the end of its output."""


@dataclass(frozen=True)
class Benchmark:
    """Launches runs of systems, with their time limits."""

    launcher: Launcher
    systems: Mapping[str, System]
    seconds_per_run: float
    timeout_seconds: float

    def measure_all(self, runs: Sequence[Run], results: Results) -> None:
        """Make the runs that have no result yet. A case that failed is not repeated."""
        left = [run for run in runs if run not in results]
        progress = Progress(len(left))
        try:
            for index, run in enumerate(left):
                expected = [self._expect(later.case, results) for later in left[index:]]
                progress.begin(str(run.case), sum(expected))
                if not results.has_failed(run.case):
                    self._measure(run, results, progress)
                progress.end(expected[0])
        finally:
            progress.close()

    def _measure(self, run: Run, results: Results, progress: Progress) -> None:
        try:
            results.add(self.measure(run, self._plan(run.case, results)))
        except RunFailed as failure:
            results.add_failure(Failure(run, str(failure)))
            progress.print(f"failed: {run.case}: {last_lines(str(failure), 1)}")

    def measure(self, run: Run, steps: Steps) -> Measurement:
        """Make one run, in a temporary folder."""
        system = self.systems[run.case.system]
        with tempfile.TemporaryDirectory(prefix="bench-scaling-") as folder:
            reports = _make_reports(Path(folder), run.case)
            started = time.perf_counter()
            done = self._start(run.case, steps, reports)
            seconds = time.perf_counter() - started
            # mpirun may exit with 0 after a node was lost: only a report proves success
            if done.returncode or not all(report.exists() for report in reports):
                output = last_lines(done.stdout, REPORTED_LINES)
                raise RunFailed(f"exit code {done.returncode}\n{output}")
            try:
                figures = join_figures([system.read(report) for report in reports])
            except BadReport as error:
                raise RunFailed(str(error)) from None
            return Measurement(run, steps, figures, seconds)

    def _start(
        self, case: Case, steps: Steps, reports: Sequence[Path]
    ) -> subprocess.CompletedProcess[str]:
        system = self.systems[case.system]
        if not case.apart:
            command = system.command(case, steps, reports[0])
            return self.launcher.run(command, case.nodes, self.timeout_seconds)
        commands = [system.command(case.alone, steps, report) for report in reports]
        return self.launcher.run_apart(commands, self.timeout_seconds)

    def _plan(self, case: Case, results: Results) -> Steps:
        step_seconds = estimate_step(case, results)
        return plan_steps(case.system, step_seconds, self.seconds_per_run)

    def _expect(self, case: Case, results: Results) -> float:
        return estimate_run(case, self._plan(case, results), results)


def _make_reports(folder: Path, case: Case) -> list[Path]:
    """Return the paths of reports: one for all nodes, or one per node in separate folders."""
    folders = [folder / str(node) for node in range(case.nodes if case.apart else 1)]
    for one in folders:
        one.mkdir()
    return [one / "report.json" for one in folders]
