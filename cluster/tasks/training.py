"""fab train, logs, stop: starts, follows and stops a training run on the boards."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from invoke import Context, Exit, task

from cluster.errors import ClusterError
from cluster.inventory_file import Inventory
from cluster.tasks.board import Board, ConnectionLost
from cluster.tasks.boards import HELP, find_inventory, select
from cluster.tasks.fetch import fetch_runs
from cluster.tasks.job import Job

LAST_LINES = 40


@task(help=HELP, auto_shortflags=False)
def train(c: Context, inventory: str | None = None) -> None:
    """Train on all boards: fab train -- OPTIONS of edgeddl.train

    Runs mpirun on the head, with one rank on each board, or on the boards of -H. Shows the output
    and copies summary and checkpoints to runs/CLUSTER/ when the run ends, even if it failed.

    Ctrl-C stops the run after the current step, with a checkpoint; a second Ctrl-C stops it
    immediately. The run continues if you close the laptop or lose the connection: `fab logs` shows
    it again, `fab stop` stops it, `fab fetch` copies its files.

      fab train -- --model resnet9 --epochs 30
      fab train -- --resume auto
      fab train -H pi-01,pi-02 -- --dataset shapes
    """
    cluster = find_inventory(inventory)
    command = mpirun_line(select(c, cluster), cluster, c.words)
    head = Board(cluster.head)
    job = Job(head)
    print(f"{head.name}$ {command}", flush=True)
    job.start(command, terminal_columns())
    code = follow_until_end(job, head)
    fetch_runs(cluster, head, job.runs(named_run(c.words)))
    if code:
        raise Exit(f"training ended with exit code {code}", code)


@task(
    help={**HELP, "no-follow": "print the log and exit", "lines": "number of lines to start with"},
    auto_shortflags=False,
)
def logs(
    c: Context, inventory: str | None = None, no_follow: bool = False, lines: int = LAST_LINES
) -> None:
    """Show the output of the training run until it ends; Ctrl-C leaves it running

    If no run is active, shows the output of the last one.
    """
    head, job = find_job(find_inventory(inventory))
    if no_follow or not job.is_running():
        return job.show(lines)
    try:
        print(f"{head.name}$ {job.command()}", flush=True)
        job.follow(f"-n {lines}")
    except KeyboardInterrupt:
        raise Exit("\nthe run continues; stop it with `fab stop`", 0) from None
    except ConnectionLost:
        raise lost(head) from None


@task(help={**HELP, "now": "stop immediately, without a checkpoint"}, auto_shortflags=False)
def stop(c: Context, inventory: str | None = None, now: bool = False) -> None:
    """Stop the training run after the current step, with a checkpoint

    fab train -- --resume auto continues it, with its options.
    """
    head, job = find_job(find_inventory(inventory))
    if not job.is_running():
        raise ClusterError(f"no training run is active on {head.name}")
    log_bytes = job.log_bytes()
    if now:
        job.stop_by_force()
    else:
        job.stop()
    try:
        job.follow(f"-c +{log_bytes + 1}")
    except ConnectionLost:
        raise lost(head) from None


def find_job(cluster: Inventory) -> tuple[Board, Job]:
    head = Board(cluster.head)
    job = Job(head)
    if not job.exists():
        raise ClusterError(f"no training run on {head.name} yet", hint="fab train -- OPTIONS")
    return head, job


def mpirun_line(boards: Sequence[Board], cluster: Inventory, options: Sequence[str]) -> str:
    """Return mpirun's command line. The head's hostfile lists all boards; a subset is named."""
    ranks = ["mpirun", "-np", str(len(boards))]
    if len(boards) < len(cluster.hosts):
        ranks += ["--host", ",".join(f"{board.name}:1" for board in boards)]
    return shlex.join([*ranks, "python", "-m", "edgeddl.train", *options])


def named_run(options: Sequence[str]) -> str | None:
    """Return the value of --run-dir, if it is given."""
    for index, word in enumerate(options):
        name, _, value = word.partition("=")
        if name == "--run-dir":
            return value or next(iter(options[index + 1 :]), None)
    return None


def terminal_columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def follow_until_end(job: Job, head: Board) -> int:
    """Print the output of the job, forward Ctrl-C to it, and return its exit code."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        following = pool.submit(job.follow, "-n +1")
        try:
            _wait(following, job)
        except ConnectionLost:
            raise lost(head) from None
    return job.code()


def _wait(following: Future[None], job: Job) -> None:
    while True:
        try:
            return following.result()
        except KeyboardInterrupt:
            job.stop()


def lost(head: Board) -> ClusterError:
    return ClusterError(
        f"connection to {head.name} lost; the run continues as long as the board is up",
        hint="show it with `fab logs`, stop it with `fab stop`, copy its files with `fab fetch`",
    )
