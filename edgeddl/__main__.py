"""The command `edgeddl`, also `python -m edgeddl`: training, data sets, benchmarks, reports."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from edgeddl import hardware, log, machine
from edgeddl.errors import INTERRUPTED, EdgeddlError
from edgeddl.options import SuggestingParser
from edgeddl.table import render_facts

# Name, module and help of each command; the module defines `add_arguments` and `run`.
COMMANDS = (
    (
        "evaluate",
        "edgeddl.inference.evaluate_cli",
        "evaluate a trained model: [mpirun -np N] edgeddl evaluate RUN",
    ),
    (
        "predict",
        "edgeddl.inference.predict_cli",
        "classify pictures with a trained model: files, folders or a camera",
    ),
    ("data", "edgeddl.data.cli", "download, check and pack data sets"),
    ("linpack", "edgeddl.linpack.cli", "measure how fast this machine or cluster computes"),
    (
        "exporter",
        "edgeddl.metrics.exporter",
        "serve temperature, clock, throttling and power of this machine to Prometheus",
    ),
    ("report", "edgeddl.report.cli", "plot or compare runs"),
    ("export", "edgeddl.export.cli", "write a trained model as ONNX, npz or safetensors"),
)
BENCHES = (
    (
        "allreduce",
        "edgeddl.measure.allreduce",
        "time all-reduces by size and algorithm; start it with mpirun -np N edgeddl ...",
    ),
    ("exporter", "edgeddl.measure.exporter", "measure how much scraping slows down training"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["train"]:  # parses its own options, before NumPy is imported
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
    """The parser; only commands that occur in `words` get their options."""
    parser = SuggestingParser(
        prog="edgeddl", description="You can also run it as python -m edgeddl."
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    commands.add_parser("train", help="train a network: [mpirun -np N] edgeddl train")
    info = commands.add_parser("info", help="describe this machine and this installation")
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    info.set_defaults(run=print_info)
    bench = commands.add_parser("bench", help="run benchmarks on this cluster")
    _add_commands(bench.add_subparsers(required=True, metavar="what"), BENCHES, words)
    _add_commands(commands, COMMANDS, words)
    return parser


def _add_commands(
    parsers: Any, commands: Sequence[tuple[str, str, str]], words: Sequence[str]
) -> None:
    """Import only the modules of commands in `words`, which keeps a service small."""
    for name, module_name, text in commands:
        parser = parsers.add_parser(name, help=text)
        if name in words:
            module = import_module(module_name)
            module.add_arguments(parser)
            parser.set_defaults(run=module.run)


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
        "mpirun": shutil.which("mpirun") or "not in PATH; run . .venv/bin/activate",
    }
    if options.json:
        facts |= {"sensors": sensors.as_dict(), "memory": memory and memory.as_dict()}
        log.print_text(json.dumps(facts, indent=1))
    else:
        facts |= hardware.describe(sensors, memory)
        log.print_text(render_facts([(name, str(value)) for name, value in facts.items()]))


if __name__ == "__main__":
    sys.exit(main())
