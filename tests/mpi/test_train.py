"""`mpirun -np N python -m edgeddl.train` as its user meets it: runs, errors, deaths, resuming."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import MPI_ENVIRONMENT, MPIRUN, REPOSITORY, mpi_job, mpirun

pytestmark = pytest.mark.mpi

TRAIN = ("-m", "edgeddl.train")
SMALL = (
    "--dataset", "shapes", "--limit-train", "60", "--limit-test", "30",
    "--batch-size", "8", "--epochs", "2", "--model", "tests.models:TinyNet",
)  # fmt: skip
# A user's own model is imported from the folder the run is started in.
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY)}


def train(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    return mpirun(ranks, *TRAIN, *SMALL, *options, cwd=folder, env=ENVIRONMENT)


def summary(folder: Path, name: str = "tests.models-TinyNet-shapes") -> dict[str, Any]:
    return json.loads((folder / "runs" / name / "summary.json").read_text())


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run(tmp_path: Path, ranks: int) -> None:
    done = train(tmp_path, ranks)
    assert done.returncode == 0, done.stderr
    assert f"global batch   {8 * ranks} = 8 per rank x 1 accumulation x {ranks} rank" in done.stdout
    assert "\r" not in done.stdout.replace("\r\n", "\n") and "\x1b" not in done.stdout
    assert "\r" not in done.stderr.replace("\r\n", "\n") and "\x1b" not in done.stderr
    result = summary(tmp_path)
    assert result["images"] == 120
    assert [rank["rank"] for rank in result["ranks"]] == list(range(ranks))
    assert (result["ranks"][0]["bytes_sent"] > 0) == (ranks > 1)


def test_a_policy_of_the_users_own(tmp_path: Path) -> None:
    done = train(tmp_path, 2, "--compression", "docs.examples.round_robin:RoundRobin")
    assert done.returncode == 0, done.stderr
    assert "a quarter of the gradients on the wire" in done.stdout
    assert summary(tmp_path)["images"] == 120


def test_without_mpirun_it_is_one_rank(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *TRAIN, *SMALL], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | ENVIRONMENT, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(summary(tmp_path)["ranks"]) == 1


# What MPI adds is wrong.
CANNOT_ADD = """
import runpy
from mpi4py import MPI
MPI.SUM = MPI.MAX
runpy.run_module("edgeddl.train", run_name="__main__")
"""


def test_by_the_ring(tmp_path: Path) -> None:
    assert train(tmp_path, 3, "--allreduce", "mpi").returncode == 0
    options = (*SMALL, "--allreduce", "ring")
    done = mpirun(3, "-c", CANNOT_ADD, *options, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert ", ring; all-reduce" in done.stdout
    losses = summary(tmp_path, "tests.models-TinyNet-shapes-2")["step_losses"]
    assert losses == pytest.approx(summary(tmp_path)["step_losses"], rel=1e-5)


# Hosts of this name have this machine's addresses, so none is in a network with another.
STRANGERS = """
import runpy, sys
from mpi4py import MPI
MPI.Get_processor_name = lambda: f"host-{MPI.COMM_WORLD.rank}"
runpy.run_module("edgeddl.train", run_name="__main__")
"""


def test_hosts_without_a_common_network_sum_by_mpi(tmp_path: Path) -> None:
    done = mpirun(2, "-c", STRANGERS, *SMALL, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "the hosts have no IPv4 network in common" in done.stderr
    assert ", mpi; all-reduce" in done.stdout


@pytest.mark.parametrize("option", ["--allreduce=ring", "--compression=fp16"])
def test_a_ring_that_cannot_be_is_one_message(tmp_path: Path, option: str) -> None:
    options = (*SMALL, option)
    done = mpirun(2, "-c", STRANGERS, *options, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 3
    assert done.stderr.count("the hosts have no IPv4 network in common") == 1
    assert "hint: --allreduce mpi" in done.stderr and "Traceback" not in done.stderr


def test_twice_the_same_bit_for_bit(tmp_path: Path) -> None:
    for _ in range(2):
        assert train(tmp_path, 2, "--compression", "fp16").returncode == 0
    second = summary(tmp_path, "tests.models-TinyNet-shapes-2")
    assert second["step_losses"] == summary(tmp_path)["step_losses"]


def test_threads_default_to_a_share_of_the_cores(tmp_path: Path) -> None:
    assert train(tmp_path, 2).returncode == 0
    cores = len(os.sched_getaffinity(0))
    assert [rank["threads"] for rank in summary(tmp_path)["ranks"]] == [max(cores // 2, 1)] * 2


def test_a_slow_rank_gets_a_smaller_share_from_the_start(tmp_path: Path) -> None:
    done = train(tmp_path, 2, "--model", "tests.models:SleepyNet", "--balance", "auto")
    assert done.returncode == 0, done.stderr
    shares = re.search(r"balance +auto, initially (\d+) (\d+) images per step", done.stdout)
    assert shares is not None
    first, second = map(int, shares.groups())
    assert first > 2 * second and first + second == 16


def test_a_rank_that_slows_down_gets_a_smaller_share(tmp_path: Path) -> None:
    options = ("--model", "tests.models:TiringNet", "--limit-train", "160", "--balance", "auto")
    done = train(tmp_path, 2, *options)
    assert done.returncode == 0, done.stderr
    result = summary(tmp_path, "tests.models-TiringNet-shapes")
    first, second = (rank["batch_share"] for rank in result["ranks"])
    assert first > second and first + second == 16
    changes = re.findall(r"balance: (.+) images per step", done.stderr)
    assert changes[-1] == f"{first} {second}"
    assert (result["images"], result["steps"]) == (2 * 160, 2 * 10)


def test_speeds_of_other_ranks_are_refused_once(tmp_path: Path) -> None:
    done = train(tmp_path, 2, "--balance", "1,1,0.5")
    assert done.returncode == 2
    assert done.stderr.count("--balance has 3 speeds for 2 ranks") == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_wrong_option_is_said_once_without_traceback(tmp_path: Path) -> None:
    done = train(tmp_path, 3, "--batch-size", "-4")
    assert done.returncode == 2
    assert done.stderr.count("--batch-size") == 1
    assert "Traceback" not in done.stderr


def test_absent_data_is_said_once(tmp_path: Path) -> None:
    done = train(tmp_path, 2, "--dataset", "cifar10", "--data-dir", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert done.stderr.count("data fetch cifar10") == 1
    assert "--dataset shapes" in done.stderr
    assert "Traceback" not in done.stderr


def test_ranks_that_disagree_are_named(tmp_path: Path) -> None:
    second = [":", "-np", "1", sys.executable, *TRAIN, *SMALL, "--lr", "0.3"]
    done = mpirun(2, *TRAIN, *SMALL, *second, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 3
    assert "option lr: 0.025 on ranks 0-1, 0.3 on rank 2" in done.stderr
    assert "Traceback" not in done.stderr


def test_ranks_with_different_models_are_named(tmp_path: Path) -> None:
    second = [":", "-np", "1", sys.executable, *TRAIN, *SMALL, "--model", "resnet9"]
    done = mpirun(1, *TRAIN, *SMALL, *second, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 3
    assert "option model: tests.models:TinyNet on rank 0, resnet9 on rank 1" in done.stderr


def train_with_two_kinds_of_kernels(
    folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    reference = ["env", "EDGEDDL_KERNELS=reference", sys.executable]
    second = [":", "-np", "1", *reference, *TRAIN, *SMALL, *options]
    return mpirun(1, *TRAIN, *SMALL, *options, *second, cwd=folder, env=ENVIRONMENT)


def test_ranks_with_different_kernels_are_named(tmp_path: Path) -> None:
    done = train_with_two_kinds_of_kernels(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ranks may differ in the last bits of results") == 1
    assert re.search(r"kernels: native .+ on rank 0, reference .+ on rank 1", done.stderr)
    assert re.search(r"hosts by rank: 0: \S+, 1: ", done.stderr)


def test_powersgd_refuses_ranks_with_different_kernels(tmp_path: Path) -> None:
    done = train_with_two_kinds_of_kernels(tmp_path, "--compression", "powersgd")
    assert done.returncode == 3
    assert done.stderr.count("ranks do not run the same thing") == 1
    assert re.search(r"kernels: native .+ on rank 0, reference .+ on rank 1", done.stderr)
    assert not (tmp_path / "runs").exists()


def test_an_exception_on_one_rank_ends_all(tmp_path: Path) -> None:
    done = train(tmp_path, 3, "--model", "tests.models:FailingNet")
    assert done.returncode == 1
    assert re.search(r"\[rank 1/3 \S+\] error: ended by an exception", done.stderr)
    assert "ZeroDivisionError: a bug in rank 1's model" in done.stderr


def test_a_hanging_rank_is_named_and_the_job_ends(tmp_path: Path) -> None:
    stall = ("--stall-warning-seconds", "1", "--stall-timeout-seconds", "3")
    done = train(tmp_path, 3, "--model", "tests.models:HangingNet", *stall)
    assert done.returncode == 3
    assert re.search(
        r"warning: waited \d+ s in all-reduce; not joined: rank 1 on \S+ \(responding", done.stderr
    )
    assert re.search(r"error: gave up after \d+ s", done.stderr)


def test_a_stopped_process_shows_no_sign_of_life(tmp_path: Path) -> None:
    stall = ("--stall-warning-seconds", "1", "--stall-timeout-seconds", "4")
    with running(tmp_path, 2, "--epochs", "10000", *stall) as job:
        wait_for(lambda: checkpoints(tmp_path))
        os.kill(rank_process(job, 1), signal.SIGSTOP)
        _, errors = job.communicate(timeout=40)
    assert job.returncode == 3
    assert "rank 1 on" in errors and "no heartbeat" in errors


def test_resume_needs_no_other_option_and_the_run_on_rank_0_alone(tmp_path: Path) -> None:
    """The other rank is started in an empty folder, as on a host with a disk of its own."""
    assert train(tmp_path, 2, "--lr", "0.07", "--max-steps", "3").returncode == 0
    (tmp_path / "host").mkdir()
    resume = (*TRAIN, "--resume", "auto")
    other = (":", "-np", "1", "--wdir", tmp_path / "host", sys.executable, *resume)
    done = mpirun(1, *resume, *other, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    name = "runs/tests.models-TinyNet-shapes"
    assert f"the newest unfinished run is {name}" in done.stderr
    assert f"options from {name}/options.json: --model tests.models:TinyNet" in done.stderr
    (tmp_path / "straight").mkdir()
    assert train(tmp_path / "straight", 2, "--lr", "0.07").returncode == 0
    assert summary(tmp_path)["step_losses"] == summary(tmp_path / "straight")["step_losses"]
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.npz")}
    refused = mpirun(
        2, *resume, "--dataset", "shapes", "--lr", "0.1", cwd=tmp_path, env=ENVIRONMENT
    )
    assert refused.returncode == 2
    assert refused.stderr.count("--lr: 0.07 there, 0.1 now") == 1
    assert "Traceback" not in refused.stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.npz")}


def test_a_killed_rank_ends_the_job_and_the_run_resumes(tmp_path: Path) -> None:
    options = ("--checkpoint-every", "1", "--stall-timeout-seconds", "60")
    with running(tmp_path, 2, "--epochs", "10000", *options) as job:
        wait_for(lambda: len(checkpoints(tmp_path)) >= 3)
        os.kill(rank_process(job, 1), signal.SIGKILL)
        job.communicate(timeout=40)
    assert job.returncode != 0
    reached = int(checkpoints(tmp_path)[-1].stem.rpartition("-")[2])
    steps = str(reached + 3)
    done = train(tmp_path, 2, "--epochs", "10000", "--resume", "auto", "--max-steps", steps)
    assert done.returncode == 0, done.stderr
    assert "resuming from" in done.stderr
    straight = tmp_path / "straight"
    straight.mkdir()
    assert train(straight, 2, "--epochs", "10000", "--max-steps", steps).returncode == 0
    assert summary(tmp_path)["step_losses"] == summary(straight)["step_losses"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_mpirun_leaves_a_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, 3, "--epochs", "10000", "--checkpoint-every", "1000000") as job:
        wait_for(lambda: (tmp_path / "runs").exists() and steps_done(tmp_path))
        job.send_signal(number)
        output, errors = job.communicate(timeout=40)
    assert job.returncode == 130, errors
    assert "stopped after" in output
    result = summary(tmp_path)
    assert result["stopped"]
    assert int(checkpoints(tmp_path)[-1].stem.rpartition("-")[2]) == result["steps"]
    assert "Traceback" not in errors


def test_interrupting_a_single_process_leaves_a_checkpoint(tmp_path: Path) -> None:
    options = ("--epochs", "10000", "--checkpoint-every", "1000000")
    with subprocess.Popen(
        [sys.executable, *TRAIN, *SMALL, *options], cwd=tmp_path, text=True,
        env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        wait_for(lambda: steps_done(tmp_path))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=40)
    assert process.returncode == 130, errors
    assert summary(tmp_path)["stopped"]


@pytest.mark.parametrize("ranks", [None, 2])
def test_closing_the_terminal_leaves_a_checkpoint(tmp_path: Path, ranks: int | None) -> None:
    """A dropped ssh connection: SIGHUP, and a terminal that can no longer be written to."""
    options = ("--epochs", "10000", "--checkpoint-every", "1000000")
    train = [sys.executable, *TRAIN, *SMALL, *options]
    command = train if ranks is None else [str(MPIRUN), "-np", str(ranks), *train]
    terminal, other_end = pty.openpty()
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | MPI_ENVIRONMENT | ENVIRONMENT,
        stdin=other_end, stdout=other_end, stderr=other_end, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:  # fmt: skip
        os.close(other_end)
        threading.Thread(target=read_all, args=(terminal,), daemon=True).start()
        wait_for(lambda: steps_done(tmp_path))
        before = checkpoints(tmp_path)
        os.close(terminal)
        process.wait(timeout=40)
    assert summary(tmp_path)["stopped"]
    assert checkpoints(tmp_path) != before


def test_a_rank_that_cannot_import_ends_the_job(tmp_path: Path) -> None:
    """Chainer is broken on one board: the others must not wait for it for ever."""
    broken = tmp_path / "broken" / "chainer"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('a broken installation')\n")
    path = f"PYTHONPATH={broken.parent}:{REPOSITORY}"
    second = [":", "-np", "1", "env", path, sys.executable, *TRAIN, *SMALL]
    done = mpirun(1, *TRAIN, *SMALL, *second, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "a broken installation" in done.stderr


def test_help_is_printed_once() -> None:
    done = mpirun(2, *TRAIN, "--help")
    assert done.returncode == 0
    assert done.stdout.count("--batch-size N") == 1


def read_all(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass


def running(folder: Path, ranks: int, *options: str) -> Any:
    return mpi_job(ranks, *TRAIN, *SMALL, *options, cwd=folder, env=ENVIRONMENT)


def checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/*/checkpoints/checkpoint-*.npz"))


def steps_done(folder: Path) -> bool:
    """An accuracy was the best so far, so a checkpoint was written: training is well under way."""
    return bool(list(folder.glob("runs/*/checkpoints/best.npz")))


def rank_process(job: subprocess.Popen[str], rank: int) -> int:
    """The process of a rank, found by what mpirun puts into its environment."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            session = os.getsid(int(process.name))
        except (OSError, ValueError):
            continue
        if session == job.pid and f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
            return int(process.name)
    raise AssertionError(f"no process of rank {rank}")


def wait_for(condition: Callable[[], Any], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.1)
