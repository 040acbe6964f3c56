"""Compares the accuracy of training runs with different kernels.

Runs differ only in their kernels: edgeddl's native kernels, its NumPy reference, stock Chainer's or
PyTorch's. Images, their order and augmentation, initial parameters and schedule are the same, and
all runs have one rank. Other options are passed to edgeddl.train, e.g. --epochs, --model (resnet9
or resnet18), --limit-train, --data-dir, --batch-size, --lr, --threads.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from baselines.option_types import names_of
from baselines.torch_environment import add_torch_options, find_torch, torch_version

from compare_accuracy.report import FIRST_STEPS, FIRST_STEPS_TOLERANCE, render, summarise
from compare_accuracy.runs import KERNELS, train
from edgeddl import machine
from edgeddl.atomic_file import write_json
from edgeddl.errors import EdgeddlError
from edgeddl.options import parse_train_options

# Defaults that differ from edgeddl.train's, so that a run takes minutes.
DEFAULTS = ("--model", "resnet9", "--epochs", "5", "--schedule", "one-cycle")


def main() -> int:
    options, own = parse_options()
    torch_python = find_torch(options) if "torch" in options.kernels else None
    if "torch" in options.kernels and torch_python is None:
        print("PyTorch is not installed", file=sys.stderr)
        print(
            "  hint: install it with --with-torch, or compare others: --kernels native,chainer",
            file=sys.stderr,
        )
        return 2
    results: dict[str, Any] = {
        "machine": machine.cpu_name(),
        "versions": machine.versions(),
        "options": parse_train_options(own).to_json(),
        "runs": [],
    }
    if torch_python:
        results["versions"]["torch"] = torch_version(torch_python)
    for seed in options.seeds:
        for kernels in options.kernels:
            print(f"{kernels}, seed {seed}", flush=True)
            results["runs"].append(train(kernels, seed, own, torch_python))
            write_json(options.output, results)  # after each run: all of them may take hours
    base = options.kernels[0]
    results["summary"] = summary = summarise(results["runs"], base)
    write_json(options.output, results)
    print(f"\n{render(summary, options.seeds, base)}\n")
    print(f"results are in {options.output}")
    return check_first_losses(max(of["first_losses_apart"] for of in summary.values()))


def parse_options() -> tuple[argparse.Namespace, list[str]]:
    """Return this script's options, and those for edgeddl.train."""
    parser = argparse.ArgumentParser(
        prog="scripts/compare-accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--kernels",
        type=names_of(KERNELS),
        default=["native", "torch"],
        metavar="NAME,NAME",
        help=f"kernels out of {', '.join(KERNELS)}; the others are compared with the first"
        " (default: native,torch)",
    )
    parser.add_argument(
        "--seeds", type=_seeds, default=[1, 2, 3], metavar="N,N", help="(default: 1,2,3)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/compare-accuracy.json"),
        metavar="FILE.json",
        help="file for all results (default: runs/compare-accuracy.json)",
    )
    add_torch_options(parser)
    options, rest = parser.parse_known_args()
    own = [*DEFAULTS, *rest]
    try:
        parse_train_options(own)
    except EdgeddlError as error:
        parser.error(str(error))
    return options, own


def _seeds(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected whole numbers")
    return [int(part) for part in parts]


def check_first_losses(apart: float) -> int:
    """Return the exit code: if the first losses differ, the runs did not start equally."""
    if apart <= FIRST_STEPS_TOLERANCE:
        return 0
    print(
        f"the losses of the first {FIRST_STEPS} steps differ by {apart:.1e}, expected at most"
        f" {FIRST_STEPS_TOLERANCE}: these are not the same runs",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the run has printed the reason
