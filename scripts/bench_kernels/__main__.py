"""Compares edgeddl's kernels with stock Chainer and PyTorch, on this machine, in one run.

The systems alternate step by step. Each has its own process on the same cores, and only one of them
computes at a time. PyTorch is included if it is installed; --with-torch installs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from baselines.machine_facts import describe_machine
from baselines.option_types import count, counts
from baselines.process import WorkerFailed
from baselines.torch_environment import add_torch_options, find_torch

from bench_kernels.alternation import LEAST_ROUNDS, turns_at_most
from bench_kernels.layers import Layer, choose_layers
from bench_kernels.measurements import measure_convolutions, measure_training
from bench_kernels.plot import plot_convolutions, plot_training
from bench_kernels.progress import Progress
from bench_kernels.report import render_convolutions, render_training
from bench_kernels.systems import Systems
from edgeddl import machine
from edgeddl.atomic_file import write_json

Results = list[dict[str, Any]]
STEMS = ("cifar", "imagenet")


def main() -> None:
    parser = make_parser()
    options = parser.parse_args()
    cores = machine.available_cores()
    threads = options.threads or [number for number in (1, 2) if number <= cores]
    if max(threads) > cores:
        parser.error(f"--threads {max(threads)}: this machine has {cores} available cores")
    layers = choose_layers(options.layers or "", options.layer_batch)
    if not layers:
        parser.error(f"--layers {options.layers!r}: no layer's name contains this text")
    systems = Systems(find_torch(options))
    if systems.torch_python is None:
        print("PyTorch is not installed and is skipped; --with-torch installs it", flush=True)
    both = options.layers is None and not options.end_to_end
    training, convolutions = run(
        systems,
        threads,
        options.stem,
        options.batches if both or options.end_to_end else [],
        layers if both or options.layers is not None else [],
        options.steps,
    )
    publish(options.output, systems, training, convolutions)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--batches",
        type=counts,
        default=[1, 8, 32, 64, 256],
        metavar="N,N",
        help="batch sizes of training steps (default: 1,8,32,64,256)",
    )
    parser.add_argument(
        "--threads", type=counts, metavar="N,N", help="thread counts (default: 1,2)"
    )
    parser.add_argument(
        "--stem",
        choices=STEMS,
        default=STEMS[0],
        help="first layers of the network in training steps (default: %(default)s)",
    )
    parser.add_argument("--end-to-end", action="store_true", help="measure only training steps")
    parser.add_argument(
        "--layers",
        nargs="?",
        const="",
        metavar="TEXT",
        help="measure only single convolutions, those whose name contains this text",
    )
    parser.add_argument(
        "--layer-batch",
        type=count,
        metavar="N",
        help="batch size of single convolutions (default: 32, depthwise 8)",
    )
    parser.add_argument(
        "--steps",
        type=count,
        default=7,
        metavar="N",
        help=f"measured steps of each system; slow systems take fewer, at least {LEAST_ROUNDS}"
        " (default: 7)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/bench-kernels"),
        metavar="DIR",
        help="folder for tables, results and plots (default: runs/bench-kernels)",
    )
    add_torch_options(parser)
    return parser


def run(
    systems: Systems,
    all_threads: Sequence[int],
    stem: str,
    batches: Sequence[int],
    layers: Sequence[Layer],
    rounds: int,
) -> tuple[Results, Results]:
    """Measure training steps and convolutions."""
    pytorch, cases = len(systems.pytorch), sum(len(layer.passes) for layer in layers)
    turns = len(batches) * turns_at_most(pytorch + 2, rounds)
    turns += cases * turns_at_most(pytorch + 1, rounds)
    progress = Progress(turns * len(all_threads))
    training: Results = []
    convolutions: Results = []
    for threads in all_threads:
        for batch in batches:
            training.append(measure_training(systems, threads, stem, batch, rounds, progress))
        convolutions += measure_convolutions(systems, threads, layers, rounds, progress)
    progress.close()
    return training, convolutions


def publish(output: Path, systems: Systems, training: Results, convolutions: Results) -> None:
    """Print and save the tables, save all results as JSON, and draw plots."""
    output.mkdir(parents=True, exist_ok=True)
    tables = [render_training(training)] if training else []
    tables += [render_convolutions(convolutions)] if convolutions else []
    text = "\n\n".join(tables)
    print(f"\n{text}\n")
    (output / "results.txt").write_text(f"{text}\n")
    facts = describe_machine(systems.torch_python)
    results = {**facts, "training": training, "convolutions": convolutions}
    write_json(output / "results.json", results)
    if find_spec("matplotlib") is None:
        print("no plots: matplotlib is not installed (python -m pip install matplotlib)")
    else:
        draw(output, training, convolutions, pytorch=bool(systems.pytorch))
    print(f"results are in {output}")


def draw(output: Path, training: Results, convolutions: Results, *, pytorch: bool) -> None:
    if training:
        plot_training(training, output / "training.png")
    if convolutions and pytorch:
        plot_convolutions(convolutions, output / "convolutions.png")


if __name__ == "__main__":
    try:
        main()
    except WorkerFailed as failure:
        sys.exit(str(failure))
