"""python -m edgeddl: this machine, data sets, benchmarks, reports. Training is edgeddl.train."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from edgeddl import hardware, log, machine
from edgeddl.config import data_folder
from edgeddl.errors import INTERRUPTED, EdgeddlError
from edgeddl.linpack import command as linpack_command
from edgeddl.measure import allreduce as allreduce_bench
from edgeddl.measure import exporter as exporter_bench
from edgeddl.metrics import exporter
from edgeddl.report import command as report_command
from edgeddl.table import render_facts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    log.configure()
    options = build_parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except EdgeddlError as error:
        log.logger.error("%s", error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m edgeddl",
        description="Training is started by: [mpirun -np N] python -m edgeddl.train",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    info = commands.add_parser("info", help="what this machine and this installation are")
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    info.set_defaults(run=print_info)
    data = commands.add_parser("data", help="get data sets and check them").add_subparsers(
        required=True, metavar="action"
    )
    fetch = data.add_parser("fetch", help="download a data set, or go on with a download")
    fetch.add_argument("--url", help="a mirror of the official archive; the checksum is the same")
    fetch.set_defaults(run=fetch_data)
    check = data.add_parser("check", help="read a data set and say what is in it")
    check.set_defaults(run=check_data)
    bench = commands.add_parser("bench", help="measure this cluster").add_subparsers(
        required=True, metavar="what"
    )
    allreduce = bench.add_parser(
        "allreduce",
        help="time of an all-reduce by size and algorithm: mpirun -np N python -m edgeddl ...",
    )
    allreduce_bench.add_arguments(allreduce)
    allreduce.set_defaults(run=allreduce_bench.run)
    linpack = commands.add_parser("linpack", help="how fast this machine or cluster computes")
    linpack_command.add_arguments(linpack)
    linpack.set_defaults(run=linpack_command.run)
    scraping = bench.add_parser("exporter", help="what scraping costs a training run")
    exporter_bench.add_arguments(scraping)
    scraping.set_defaults(run=exporter_bench.run)
    service = commands.add_parser(
        "exporter",
        help="serve this machine's temperature, clock, throttling and power to Prometheus",
        description="Serves /metrics until SIGTERM or Ctrl-C. What this machine has no sensor for"
        " is absent. Training serves its own: python -m edgeddl.train --metrics-port N.",
    )
    exporter.add_arguments(service)
    service.set_defaults(run=exporter.run)
    report = commands.add_parser("report", help="a page of plots of runs, or their numbers")
    report_command.add_arguments(report)
    report.set_defaults(run=report_command.run)
    for action in (fetch, check):
        action.add_argument("dataset", choices=("cifar10",))
        action.add_argument(
            "--data-dir",
            type=Path,
            metavar="DIR",
            help="where it is kept (default: $EDGEDDL_DATA, then the cache folder)",
        )
    return parser


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
        print(json.dumps(facts, indent=1))
    else:
        facts |= hardware.describe(sensors, memory)
        print(render_facts([(name, str(value)) for name, value in facts.items()]))


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
        f" of {len(dataset.classes)} classes, fingerprint {dataset.fingerprint}"
    )


if __name__ == "__main__":
    sys.exit(main())
