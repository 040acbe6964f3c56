"""python -m edgeddl.train: options in, a trained model out, on one rank or on many."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeddl import log, machine, oom_sentinel
from edgeddl.config import TrainConfig
from edgeddl.errors import EdgeddlError
from edgeddl.options import build_parser, parse_train_options
from edgeddl.training.stop import StopRequest

if TYPE_CHECKING:
    from edgeddl.comm.communicator import Communicator


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as one rank; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    log.configure()
    if {"-h", "--help"} & set(arguments):
        return _print_help()
    options = _Options(arguments)
    machine.limit_threads(options.threads)
    oom_sentinel.watch(_describe_oom_kill(options.shown))
    try:
        return _run(options)
    finally:
        oom_sentinel.dismiss()


def _run(options: _Options) -> int:
    # NumPy reads the number of threads when it is imported: nothing above may import it.
    from edgeddl.comm.connect import connect

    try:
        communicator = connect()
    except EdgeddlError as error:
        log.logger.error("%s", error)
        return error.exit_code
    log.speak_as(communicator.rank, communicator.size, communicator.host)
    from edgeddl.comm.agreement import run_as_rank

    return run_as_rank(communicator, lambda: _train(options, communicator))


class _Options:
    """Parsed options, or the complaint about them, which waits until ranks can talk."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._config: TrainConfig | None = None
        self._error: EdgeddlError | None = None
        try:
            self._config = parse_train_options(arguments)
        except EdgeddlError as error:
            self._error = error

    @property
    def shown(self) -> TrainConfig:
        """The options as far as they are known: the defaults where they are wrong."""
        return self._config or TrainConfig()

    @property
    def threads(self) -> int:
        return self.shown.threads or machine.default_threads()

    def require(self) -> TrainConfig:
        if self._error is not None or self._config is None:
            raise self._error or AssertionError("neither options nor a complaint")
        return self._config


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


def _train(options: _Options, communicator: Communicator) -> int:
    from edgeddl.comm.agreement import together
    from edgeddl.comm.watchdog import watching
    from edgeddl.training.runner import run_training

    stop = StopRequest()
    watched = watching(
        communicator,
        warning_seconds=options.shown.stall_warning_seconds,
        timeout_seconds=options.shown.stall_timeout_seconds,
    )
    with stop.listening(), watched as communicator:
        config = together(communicator, options.require)
        outcome = run_training(config, communicator, threads=options.threads, stop=stop)
        communicator.close()
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
