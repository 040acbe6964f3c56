"""edgeddl, or python -m edgeddl: training, this machine, data sets, benchmarks, reports."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from edgeddl import hardware, log, machine
from edgeddl.config import data_folder
from edgeddl.errors import INTERRUPTED, EdgeddlError
from edgeddl.options import SuggestingParser
from edgeddl.table import render_facts

# Commands in modules of their own, which have `add_arguments` and `run`.
COMMANDS = (
    ("linpack", "edgeddl.linpack.cli", "how fast this machine or cluster computes"),
    (
        "exporter",
        "edgeddl.metrics.exporter",
        "serve this machine's temperature, clock, throttling and power to Prometheus",
    ),
    ("report", "edgeddl.report.cli", "a page of plots of runs, or their numbers"),
)
BENCHES = (
    (
        "allreduce",
        "edgeddl.measure.allreduce",
        "time of an all-reduce by size and algorithm: mpirun -np N python -m edgeddl ...",
    ),
    ("exporter", "edgeddl.measure.exporter", "what scraping costs a training run"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["train"]:  # which reads its own options, before NumPy is imported
        return import_module("edgeddl.train").main(words[1:])
    log.configure()
    options = build_parser(words).parse_args(words)
    try:
        return options.run(options) or 0
    except EdgeddlError as error:
        log.logger.error("%s", error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """For these words of a command line: other commands than those in it are known by name only."""
    parser = SuggestingParser(
        prog="edgeddl", description="Without the command edgeddl: python -m edgeddl."
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    commands.add_parser("train", help="train a network: [mpirun -np N] edgeddl train")
    info = commands.add_parser("info", help="what this machine and this installation are")
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    info.set_defaults(run=print_info)
    _add_data(commands.add_parser("data", help="get data sets and check them"))
    bench = commands.add_parser("bench", help="measure this cluster")
    _add_commands(bench.add_subparsers(required=True, metavar="what"), BENCHES, words)
    _add_commands(commands, COMMANDS, words)
    return parser


def _add_commands(
    parsers: Any, commands: Sequence[tuple[str, str, str]], words: Sequence[str]
) -> None:
    """A module is imported only where it is asked for: a service shall not carry them all."""
    for name, module_name, text in commands:
        parser = parsers.add_parser(name, help=text)
        if name in words:
            module = import_module(module_name)
            module.add_arguments(parser)
            parser.set_defaults(run=module.run)


def _add_data(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="action")
    fetch = actions.add_parser("fetch", help="download a data set, or go on with a download")
    fetch.add_argument("--url", help="a mirror of the official archive; the checksum is the same")
    fetch.set_defaults(run=fetch_data)
    check = actions.add_parser("check", help="read a data set and say what is in it")
    check.set_defaults(run=check_data)
    for action in (fetch, check):
        action.add_argument("dataset", choices=("cifar10",))
        action.add_argument(
            "--data-dir",
            type=Path,
            metavar="DIR",
            help="where it is kept (default: $EDGEDDL_DATA, then the cache folder)",
        )


def print_info(options: argparse.Namespace) -> None:
    from edgeddl import kernels

    sensors, memory = hardware.read_sensors(), hardware.read_memory()
    facts = {
        **machine.versions(),
        "blas": machine.blas_name(),
        "cpu": machine.cpu_name(),
        "cores": machine.available_cores(),
        "kernels": kernels.chosen(),
        **{f"kernels {name}": fact for name, fact in kernels.describe().items()},
        "mpirun": shutil.which("mpirun") or "not in the path: . .venv/bin/activate",
    }
    if options.json:
        facts |= {"sensors": sensors.as_dict(), "memory": memory and memory.as_dict()}
        log.print_text(json.dumps(facts, indent=1))
    else:
        facts |= hardware.describe(sensors, memory)
        log.print_text(render_facts([(name, str(value)) for name, value in facts.items()]))


def fetch_data(options: argparse.Namespace) -> None:
    from edgeddl.data import fetch_cifar10

    mirror = {"url": options.url} if options.url else {}
    fetch_cifar10(data_folder(options.data_dir), **mirror)


def check_data(options: argparse.Namespace) -> None:
    from edgeddl.data import load_dataset

    dataset = load_dataset(
        options.dataset, data_dir=data_folder(options.data_dir), limit_train=None, limit_test=None
    )
    print(
        f"{dataset.name}: {len(dataset.train):,} training and {len(dataset.test):,} test images"
        f" of {len(dataset.classes)} classes, fingerprint {dataset.fingerprint}, contents"
        f" {'match the published checksums' if dataset.verified else 'not verified'}"
    )


if __name__ == "__main__":
    sys.exit(main())
