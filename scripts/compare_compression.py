"""Compares the accuracy of training runs with different kinds of gradient compression.

Runs differ only in what ranks send each other. Images, their order and augmentation, initial
parameters, schedule and number of ranks are the same. Other options are passed to edgeddl.train,
e.g. --epochs, --limit-train, --data-dir, --batch-size, --lr, --compression-rank.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from edgeddl import machine
from edgeddl.atomic_file import write_json
from edgeddl.errors import EdgeddlError
from edgeddl.options import parse_train_options
from edgeddl.table import render_table

KINDS = {
    "none": (),
    "fp16": ("--compression", "fp16"),
    "powersgd": ("--compression", "powersgd"),
    "local-steps": ("--local-steps", "8"),
}
# Defaults that differ from edgeddl.train's, so that a run takes minutes.
DEFAULTS = (
    "--model", "resnet9", "--limit-train", "5000", "--limit-test", "2000", "--epochs", "3",
    "--batch-size", "16", "--lr", "0.0125", "--schedule", "one-cycle", "--nesterov",
)  # fmt: skip

Run = dict[str, Any]


def main() -> int:
    options, own = parse_options()
    results: dict[str, Any] = {
        "machine": machine.cpu_name(),
        "versions": machine.versions(),
        "ranks": options.ranks,
        "options": parse_train_options(own).to_json(),
        "runs": [],
    }
    for seed in options.seeds:
        for kind in options.kinds:
            print(f"{kind}, seed {seed}", flush=True)
            results["runs"].append(train(kind, seed, options.ranks, own))
            write_json(options.output, results)  # after each run: all of them may take hours
    results["summary"] = summarise(results["runs"])
    write_json(options.output, results)
    print(f"\n{render(results['summary'], options.seeds)}\n")
    print(f"results are in {options.output}")
    return 0


def parse_options() -> tuple[argparse.Namespace, list[str]]:
    """Return this script's options, and those for edgeddl.train."""
    parser = argparse.ArgumentParser(
        prog="scripts/compare-compression",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="(default: all)"
    )
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N", help="(default: 1 2 3)"
    )
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="(default: 4)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/compare-compression.json"),
        metavar="FILE.json",
        help="file for all results (default: runs/compare-compression.json)",
    )
    options, rest = parser.parse_known_args()
    own = [*DEFAULTS, *rest]
    try:
        for kind in options.kinds:
            parse_train_options([*own, *KINDS[kind]])
    except EdgeddlError as error:
        parser.error(str(error))
    return options, own


def train(kind: str, seed: int, ranks: int, options: Sequence[str]) -> Run:
    """Train once and return accuracy, losses and bytes sent; checkpoints are deleted."""
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        files = ["--run-dir", f"{folder}/run", "--summary", str(summary)]
        launch = ["mpirun", "-np", str(ranks), sys.executable, "-m", "edgeddl.train"]
        subprocess.run(
            [*launch, *options, *KINDS[kind], "--seed", str(seed), *files],
            stdout=subprocess.DEVNULL,  # banner and summary; progress goes to stderr
            check=True,
        )
        result = json.loads(summary.read_text())
    kept = ("final_accuracy", "history", "step_losses", "images_per_second")
    return {
        "kind": kind,
        "seed": seed,
        "bytes_sent_per_step": result["ranks"][0]["bytes_sent"] / result["steps"],
    } | {name: result[name] for name in kept}


def summarise(runs: Sequence[Run]) -> dict[str, Run]:
    """Return for each kind: accuracy by seed, mean, deviation, and bytes a rank sends per step.

    Runs with the same seed share images and initial parameters, so kinds are compared seed by
    seed: `difference` is the mean difference to the first kind, with its `standard_error`.
    """
    by_kind: dict[str, list[Run]] = {}
    for run in runs:
        by_kind.setdefault(run["kind"], []).append(run)
    first = [run["final_accuracy"] for run in next(iter(by_kind.values()))]
    summary = {}
    for kind, same in by_kind.items():
        accuracies = [run["final_accuracy"] for run in same]
        differences = [own - other for own, other in zip(accuracies, first, strict=True)]
        several = len(accuracies) > 1
        summary[kind] = {
            "accuracies": accuracies,
            "mean": mean(accuracies),
            "deviation": stdev(accuracies) if several else None,
            "difference": mean(differences),
            "standard_error": stdev(differences) / sqrt(len(differences)) if several else None,
            "bytes_sent_per_step": mean(run["bytes_sent_per_step"] for run in same),
        }
    return summary


def render(summary: dict[str, Run], seeds: Sequence[int]) -> str:
    """Render a column for each kind: accuracies in percent, differences in percentage points."""
    kinds = list(summary.values())
    by_seed = zip(seeds, *(one["accuracies"] for one in kinds), strict=True)
    rows = [[f"seed {seed}", *map("{:.2%}".format, same)] for seed, *same in by_seed]
    rows.append(["mean", *(f"{one['mean']:.2%}" for one in kinds)])
    rows.append(["deviation", *(points(one["deviation"]) for one in kinds)])
    rows.append([f"vs {next(iter(summary))}", *(points(one["difference"], "+") for one in kinds)])
    rows.append(["standard error", *(points(one["standard_error"]) for one in kinds)])
    rows.append(["MB sent per step", *(f"{one['bytes_sent_per_step'] / 1e6:.3f}" for one in kinds)])
    return render_table(["", *summary], rows)


def points(share: float | None, sign: str = "") -> str:
    """Render percentage points; "-" if unknown, as with a single seed."""
    return "-" if share is None else f"{share * 100:{sign}.2f}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the run has printed the reason
