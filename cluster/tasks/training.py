"""fab train, logs, stop: a run on all boards, from its start to its files on the laptop."""

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

    One rank on each board (-H: on those), started on the head. Shows what the run says, and copies
    summary and checkpoints to runs/CLUSTER/ here when it has ended, however it did.

    Ctrl-C ends the run after its step, with a checkpoint; a second Ctrl-C at once. A closed laptop
    or a lost connection does not end it: `fab logs` shows it again, `fab stop` ends it, `fab fetch`
    gets its files.

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
    help={**HELP, "no-follow": "print what there is and end", "lines": "how many to begin with"},
    auto_shortflags=False,
)
def logs(
    c: Context, inventory: str | None = None, no_follow: bool = False, lines: int = LAST_LINES
) -> None:
    """Show what the training run says, until it ends; Ctrl-C leaves it running

    Without a run: what the last one has said.
    """
    head, job = find_job(find_inventory(inventory))
    if no_follow or not job.is_running():
        return job.show(lines)
    try:
        print(f"{head.name}$ {job.command()}", flush=True)
        job.follow(f"-n {lines}")
    except KeyboardInterrupt:
        raise Exit("\nthe run goes on; `fab stop` ends it", 0) from None
    except ConnectionLost:
        raise lost(head) from None


@task(help={**HELP, "now": "at once, without a checkpoint"}, auto_shortflags=False)
def stop(c: Context, inventory: str | None = None, now: bool = False) -> None:
    """End the training run after its step, with a checkpoint

    fab train -- --resume auto continues it, with its options.
    """
    head, job = find_job(find_inventory(inventory))
    if not job.is_running():
        raise ClusterError(f"no training run is going on on {head.name}")
    said_before = job.log_bytes()
    if now:
        job.stop_by_force()
    else:
        job.stop()
    try:
        job.follow(f"-c +{said_before + 1}")
    except ConnectionLost:
        raise lost(head) from None


def find_job(cluster: Inventory) -> tuple[Board, Job]:
    head = Board(cluster.head)
    job = Job(head)
    if not job.exists():
        raise ClusterError(f"nothing was trained on {head.name} yet", hint="fab train -- OPTIONS")
    return head, job


def mpirun_line(boards: Sequence[Board], cluster: Inventory, options: Sequence[str]) -> str:
    """What would be typed on the head. All boards are in its hostfile; some are named."""
    ranks = ["mpirun", "-np", str(len(boards))]
    if len(boards) < len(cluster.hosts):
        ranks += ["--host", ",".join(f"{board.name}:1" for board in boards)]
    return shlex.join([*ranks, "python", "-m", "edgeddl.train", *options])


def named_run(options: Sequence[str]) -> str | None:
    """The folder that --run-dir names, if it does."""
    for index, word in enumerate(options):
        name, _, value = word.partition("=")
        if name == "--run-dir":
            return value or next(iter(options[index + 1 :]), None)
    return None


def terminal_columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def follow_until_end(job: Job, head: Board) -> int:
    """Print what the job says; Ctrl-C is passed on to it. Returns its exit code."""
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
        f"connection to {head.name} lost; as long as it is up, the run goes on",
        hint="`fab logs` shows it again, `fab stop` ends it, `fab fetch` gets its files",
    )
