"""edgeddl train, or python -m edgeddl.train: train a model on one rank or on many."""

from __future__ import annotations

import platform
import socket
import sys
import time
import types
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from edgeddl import log, machine, oom_sentinel
from edgeddl.config import TrainConfig
from edgeddl.errors import EdgeddlError
from edgeddl.heartbeat import COMPLETE, DIED, ENDED, FAILED, RUNNING, STARTING, Heartbeat
from edgeddl.options import build_parser, read_given_options

if TYPE_CHECKING:
    from edgeddl.comm.communicator import Communicator

# mpirun ends all ranks within a second after the first failure.
REPORT_DELAY_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as one rank; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    log.configure()
    if {"-h", "--help"} & set(arguments):
        return _print_help()
    try:
        given = read_given_options(arguments)
        config = TrainConfig(**given)
    except EdgeddlError as error:
        return _report(error)
    threads = config.threads or machine.default_threads()
    machine.limit_threads(threads)
    heartbeat = Heartbeat(config.stall_timeout_seconds)
    heartbeat.enter(STARTING)
    oom_sentinel.watch(_describe_oom_kill(config), heartbeat.line(DIED))
    try:
        return _run(config, given, threads, heartbeat)
    finally:
        oom_sentinel.dismiss()


def _run(config: TrainConfig, given: Collection[str], threads: int, heartbeat: Heartbeat) -> int:
    # BLAS reads its number of threads when NumPy is imported, so nothing above may import it.
    from edgeddl.comm.connect import connect, disconnect
    from edgeddl.comm.make_exchange import check_exchange_options

    try:
        check_exchange_options(config)
    except EdgeddlError as error:
        return _report(error)
    try:
        communicator = connect()
    except EdgeddlError as error:
        log.logger.error("%s", error)
        return error.exit_code
    heartbeat.enter(RUNNING)
    log.set_rank(communicator.rank, communicator.size, communicator.host)
    from edgeddl.comm.agreement import run_as_rank

    code = run_as_rank(communicator, lambda: _train(config, given, threads, communicator))
    heartbeat.enter(FAILED if code else COMPLETE)
    disconnect()
    heartbeat.enter(ENDED)
    return code


def _report(error: EdgeddlError) -> int:
    """Report wrong options without MPI, because other ranks may not have started yet.

    Usually all ranks have the same options. Rank 0 then reports the error, and mpirun ends the
    other ranks before their delay is over. If only their own options are wrong, they report it.
    """
    if rank := machine.launched_rank():
        log.set_rank(rank, machine.launched_size(), socket.gethostname())
        time.sleep(REPORT_DELAY_SECONDS)
    log.logger.error("%s", error)
    return error.exit_code


def _describe_oom_kill(config: TrainConfig) -> str:
    rank = machine.launched_rank() or 0
    return (
        f"error: rank {rank} on {platform.node()} was killed: the kernel ran out of memory"
        " (OOM killer)\n  hint: continue with --resume auto and half the --batch-size, twice the"
        " --accumulation and, with --lr-scaling linear, half the --lr; or use fewer ranks per host"
    )


def _print_help() -> int:
    if not machine.launched_rank():
        build_parser().print_help()
    return 0


def _train(
    config: TrainConfig, given: Collection[str], threads: int, communicator: Communicator
) -> int:
    from edgeddl.library import train_as_rank

    return train_as_rank(config, given, threads, communicator).exit_code


class _CallableModule(types.ModuleType):
    """`edgeddl.train(...)` stays callable when this module of the same name is imported."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from edgeddl.library import train

        return train(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule


if __name__ == "__main__":
    sys.exit(main())
