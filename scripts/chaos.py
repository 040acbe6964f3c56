"""Stop and kill ranks and nodes of short training runs, and count the runs that hang.

    scripts/chaos                      on this host and, as root, on an emulated cluster
    scripts/chaos --quick              three faults that only scripts/prterun can detect
    scripts/chaos --json chaos.json

A run passes if it ends by itself within LONGEST_SECONDS of the fault, with exit code 0 only if it
was complete, and leaves no processes behind. The exit code is 1 if a run does not pass. A run that
ended before the fault counts as missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from edgeddl.table import render_table  # noqa: E402

RANKS = 3
TIMEOUT_SECONDS = 6
# the timeout, with margins for a busy machine
LONGEST_SECONDS = 60
# Open MPI exports variables with this prefix, so it marks the ranks of a job on all nodes.
MARK = "OMPI_EDGEDDL_CHAOS"
TRAIN = (
    "mpirun", "-np", str(RANKS), "python", "-m", "edgeddl.train",
    "--dataset", "shapes", "--model", "resnet9", "--limit-train", "120", "--limit-test", "12",
    "--batch-size", "4", "--progress", "none", "--stall-warning-seconds", "2",
    "--stall-timeout-seconds", str(TIMEOUT_SECONDS),
)  # fmt: skip
CLUSTER = ("python", "-m", "cluster.emulate", "--name", "chaos")
NETWORK = "10.214.9.0/26"
MOMENTS = ("start-up", "start-up + 0.5 s", "mid-run", "shut-down")


@dataclass(frozen=True)
class Case:
    """A fault: the system on which ranks run, the fault, the rank it hits, and the moment."""

    system: str
    fault: str
    rank: int
    moment: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended. The exit code is None if it hung.

    `missed`: the run had already ended before the fault, which can happen at shut-down.
    """

    missed: bool
    seconds: float
    exit_code: int | None
    complete: bool
    left_over: int
    output: str

    @property
    def verdict(self) -> str:
        if self.missed:
            return "missed"
        if self.exit_code is None:
            return "HANG"
        if self.exit_code == 0 and not self.complete:
            return "FALSE SUCCESS"
        return "LEFT PROCESSES" if self.left_over else "ok"


def plan(systems: list[str], *, quick: bool) -> list[Case]:
    if quick:
        moments = ("start-up", "start-up + 0.5 s", "shut-down")
        return [Case("host", "SIGSTOP", RANKS - 1, moment) for moment in moments]
    faults = {"host": ("SIGSTOP", "SIGKILL"), "nodes": ("SIGSTOP", "SIGKILL", "kill", "cut")}
    return [
        Case(system, fault, rank, moment)
        for system in systems
        for fault, rank, moment in itertools.product(faults[system], (0, RANKS - 1), MOMENTS)
        # mpirun itself runs on the first node
        if not (rank == 0 and fault in ("kill", "cut"))
    ]


def run(case: Case, folder: Path) -> Outcome:
    mark = uuid.uuid4().hex
    steps = ("--max-steps", "4") if case.moment == "shut-down" else ("--epochs", "1000")
    command = [*TRAIN, *steps, "--checkpoint-every", "2", "--run-dir", str(folder / "run")]
    command = ["env", f"{MARK}={mark}", *command]
    if case.system == "nodes":
        command = [*CLUSTER, "exec", "chaos-01", "--", *command]
    with (folder / "output").open("w") as output:
        job = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        await_moment(case, mark, folder / "run", job)
        inflict(case, mark)
        missed, struck = job.poll() is not None, time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(timeout=LONGEST_SECONDS)
        seconds, exit_code = time.monotonic() - struck, job.poll()
        time.sleep(2)  # Open MPI's daemons end their ranks
        left_over = 0 if case.fault in ("kill", "cut") else len(list(ranks_of(mark)))
    finally:
        for process, _ in ranks_of(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if case.fault in ("kill", "cut"):
            subprocess.run([*CLUSTER, "restore", node(case.rank)], cwd=REPOSITORY, check=True)
        job.kill()
        job.wait()
    complete = (folder / "run" / "summary.json").exists()
    text = (folder / "output").read_text(errors="replace")
    return Outcome(missed, round(seconds, 1), exit_code, complete, left_over, text)


def await_moment(case: Case, mark: str, run: Path, job: subprocess.Popen[bytes]) -> None:
    moments: dict[str, Callable[[], bool]] = {
        "mid-run": lambda: bool(list(run.glob("checkpoints/*.npz"))),
        "shut-down": (run / "summary.json").exists,
    }
    is_there = moments.get(
        case.moment, lambda: any(rank == case.rank for _, rank in ranks_of(mark))
    )
    deadline = time.monotonic() + LONGEST_SECONDS
    while not is_there():
        if job.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"error: the run did not reach {case.moment}: see {run.parent}/output")
        time.sleep(0.01)
    if case.moment == "start-up + 0.5 s":
        time.sleep(0.5)


def inflict(case: Case, mark: str) -> None:
    if case.fault in ("kill", "cut"):
        subprocess.run([*CLUSTER, case.fault, node(case.rank)], cwd=REPOSITORY, check=True)
        return
    for process, rank in ranks_of(mark):
        if rank == case.rank:
            with contextlib.suppress(ProcessLookupError):  # the run has already ended
                os.kill(process, signal.Signals[case.fault])


def node(rank: int) -> str:
    return f"chaos-{rank + 1:02}"


def ranks_of(mark: str) -> Iterator[tuple[int, int]]:
    """Yield PID and rank of the job's processes; those of nodes are visible on this host too."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines = (process / "environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in lines:
                for line in lines:
                    if line.startswith(b"OMPI_COMM_WORLD_RANK="):
                        yield int(process.name), int(line.partition(b"=")[2])


@contextlib.contextmanager
def emulated_nodes(systems: list[str]) -> Iterator[None]:
    if "nodes" not in systems:
        yield
        return
    up = [*CLUSTER, "up", "--nodes", str(RANKS), "--cpu", "0.6", "--network", NETWORK]
    subprocess.run(up, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run([*CLUSTER, "down"], cwd=REPOSITORY, check=False, stdout=subprocess.DEVNULL)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="only three faults, on this host")
    parser.add_argument(
        "--system",
        choices=("host", "nodes"),
        help="only this system (default: both if root)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the results to this file"
    )
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    systems = [options.system] if options.system else ["host", *["nodes"] * (os.geteuid() == 0)]
    results: list[tuple[Case, Outcome]] = []
    cases = plan(systems, quick=options.quick)
    with emulated_nodes(sorted({case.system for case in cases})):
        for number, case in enumerate(cases, 1):
            with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
                outcome = run(case, Path(folder))
            results.append((case, outcome))
            print(
                f"[{number}/{len(cases)}] {case.system}: {case.fault} of rank {case.rank} at"
                f" {case.moment}: {outcome.verdict} after {outcome.seconds} s",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            if outcome.verdict not in ("ok", "missed"):
                print(outcome.output, file=sys.stderr)
    return report(results, options.json)


def report(results: list[tuple[Case, Outcome]], path: Path | None) -> int:
    rows = [
        [
            case.system, case.fault, str(case.rank), case.moment, f"{outcome.seconds:.1f}",
            "-" if outcome.exit_code is None else str(outcome.exit_code),
            "yes" if outcome.complete else "no", outcome.verdict,
        ]
        for case, outcome in results
    ]  # fmt: skip
    header = ["system", "fault", "rank", "at", "seconds", "exit code", "complete", "verdict"]
    print(render_table(header, rows))
    hangs = sum(outcome.verdict == "HANG" for _, outcome in results)
    missed = sum(outcome.missed for _, outcome in results)
    failed = sum(outcome.verdict not in ("ok", "missed") for _, outcome in results)
    faults = len(results) - missed
    print(f"\n{faults} faults, {hangs} hangs, {failed - hangs} other failures, {missed} missed")
    if path is not None:
        cases = [asdict(case) | asdict(o) | {"verdict": o.verdict} for case, o in results]
        counts = {"faults": faults, "hangs": hangs, "failed": failed, "missed": missed}
        figures = counts | {"cases": cases}
        path.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
