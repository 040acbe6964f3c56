"""python -m edgeddl.train: options in, a trained model out, on one rank or on many."""

from __future__ import annotations

import platform
import socket
import sys
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from edgeddl import log, machine, oom_sentinel
from edgeddl.config import TrainConfig
from edgeddl.errors import EdgeddlError
from edgeddl.heartbeat import COMPLETE, ENDED, FAILED, RUNNING, STARTING, Heartbeat
from edgeddl.options import build_parser, read_given_options
from edgeddl.training.stop import StopRequest

if TYPE_CHECKING:
    from edgeddl.comm.communicator import Communicator

# mpirun ends the ranks within a second of the first one's failure.
SILENCE_SECONDS = 5.0


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
        return _refuse(error)
    threads = config.threads or machine.default_threads()
    machine.limit_threads(threads)
    heartbeat = Heartbeat(config.stall_timeout_seconds)
    heartbeat.enter(STARTING)
    oom_sentinel.watch(_describe_oom_kill(config))
    try:
        return _run(config, given, threads, heartbeat)
    finally:
        oom_sentinel.dismiss()


def _run(config: TrainConfig, given: Collection[str], threads: int, heartbeat: Heartbeat) -> int:
    # NumPy reads the number of threads when it is imported: nothing above may import it.
    from edgeddl.comm.connect import connect, disconnect
    from edgeddl.comm.make_exchange import check_exchange_options

    try:
        check_exchange_options(config)
    except EdgeddlError as error:
        return _refuse(error)
    try:
        communicator = connect()
    except EdgeddlError as error:
        log.logger.error("%s", error)
        return error.exit_code
    heartbeat.enter(RUNNING)
    log.speak_as(communicator.rank, communicator.size, communicator.host)
    from edgeddl.comm.agreement import run_as_rank

    code = run_as_rank(communicator, lambda: _train(config, given, threads, communicator))
    heartbeat.enter(FAILED if code else COMPLETE)
    disconnect()
    heartbeat.enter(ENDED)
    return code


def _refuse(error: EdgeddlError) -> int:
    """Report wrong options without a word to other ranks, which may not be there yet.

    The ranks have the same options as a rule, so rank 0 speaks. mpirun then ends the others before
    they repeat it. They do so if only their own options are wrong.
    """
    if rank := machine.launched_rank():
        log.speak_as(rank, machine.launched_size(), socket.gethostname())
        time.sleep(SILENCE_SECONDS)
    log.logger.error("%s", error)
    return error.exit_code


def _describe_oom_kill(config: TrainConfig) -> str:
    rank = machine.launched_rank() or 0
    return (
        f"error: rank {rank} on {platform.node()} was killed: the kernel ran out of memory"
        f" (OOM killer)\n  hint: use a smaller --batch-size than {config.batch_size} with a larger"
        f" --accumulation than {config.accumulation}, or fewer ranks per host;"
        " then continue with --resume auto"
    )


def _print_help() -> int:
    if not machine.launched_rank():
        build_parser().print_help()
    return 0


def _train(
    config: TrainConfig, given: Collection[str], threads: int, communicator: Communicator
) -> int:
    from edgeddl.comm.watchdog import watching
    from edgeddl.training.runner import run_training

    stop = StopRequest()
    watched = watching(
        communicator,
        warning_seconds=config.stall_warning_seconds,
        timeout_seconds=config.stall_timeout_seconds,
    )
    with stop.listening(), watched as communicator:
        outcome = run_training(config, communicator, given=given, threads=threads, stop=stop)
        communicator.close()
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
