"""Measures training throughput of edgeddl, PyTorch's DistributedDataParallel and ChainerMN.

The systems alternate in short runs on 1 to N nodes of an emulated cluster. The benchmark uses the
cluster that is up, or creates one and removes it at the end (which needs root).

All systems train ResNet-18 with the same batch per node. Results are saved after each run: continue
an interrupted benchmark with --resume. PyTorch is included if it is installed; --with-torch
installs it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from baselines.machine_facts import describe_machine
from baselines.option_types import count, counts, names_of
from baselines.torch_environment import add_torch_options, find_torch

from bench_scaling.benchmark import Benchmark
from bench_scaling.calibration import measure_links, read_linpack_link
from bench_scaling.launcher import Launcher, LocalLauncher, NoCluster, cluster
from bench_scaling.payloads import step_payloads
from bench_scaling.plan import BALANCES, EVEN, STEMS, SYSTEMS, TORCH, UNCOMPRESSED, Run, plan_runs
from bench_scaling.plot import plot_stem
from bench_scaling.prediction import make_predictors, render_link
from bench_scaling.report import render_failures, render_report
from bench_scaling.results import ConditionsDiffer, Results, UnreadableResults
from bench_scaling.rows import Row, make_rows
from bench_scaling.systems import make_systems
from edgeddl.comm.model import LinkModel, fit_link
from edgeddl.data.shapes import COUNTS
from edgeddl.errors import EdgeddlError
from edgeddl.options import parse_train_options

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: end running jobs
        signal.signal(number, signal.default_int_handler)
    parser = make_parser()
    options = parser.parse_args()
    check_options(parser, options)
    if options.local:
        return measure(parser, options, LocalLauncher())
    with cluster(options.cluster, max(options.nodes)) as launcher:
        return measure(parser, options, launcher)


def measure(
    parser: argparse.ArgumentParser, options: argparse.Namespace, launcher: Launcher
) -> int:
    """Make all runs on these nodes and report the results."""
    if launcher.node_count and max(options.nodes) > launcher.node_count:
        parser.error(f"--nodes {max(options.nodes)}: the cluster has {launcher.node_count} nodes")
    torch_python = find_torch(options) if TORCH in options.systems else None
    systems = make_systems(launcher, options.threads, torch_python)
    if TORCH in options.systems and torch_python is None:
        if not systems.keys() & options.systems:
            parser.error("--systems torch: PyTorch is not installed; --with-torch installs it")
        print("PyTorch is not installed and is skipped; --with-torch installs it", flush=True)
    runs = plan_runs(
        [name for name in options.systems if name in systems],
        options.compressions,
        options.stems,
        options.batches,
        options.nodes,
        options.repeats,
        options.balances,
    )
    results = open_results(parser, options, conditions(options, launcher, torch_python))
    if not options.linpack:
        results.allreduces = measure_links(launcher, options.nodes, results.allreduces)
    benchmark = Benchmark(launcher, systems, options.seconds_per_run, options.timeout_seconds)
    return run(benchmark, runs, results, vars(options))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_cases(parser)
    _add_run_options(parser)
    add_torch_options(parser)
    return parser


def _add_cases(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cases to measure")
    group.add_argument(
        "--systems",
        type=names_of(SYSTEMS),
        default=list(SYSTEMS),
        metavar="NAME,NAME",
        help=f"systems out of {', '.join(SYSTEMS)} (default: all)",
    )
    group.add_argument(
        "--compressions",
        type=lambda text: text.split(","),
        default=[UNCOMPRESSED, "fp16"],
        metavar="NAME,NAME",
        help="values of edgeddl's option --compression (default: none,fp16)",
    )
    group.add_argument(
        "--balances",
        type=names_of(BALANCES),
        default=[EVEN],
        metavar="NAME,NAME",
        help="values of edgeddl's option --balance, even or auto: how nodes of different speed"
        " share a batch (default: even)",
    )
    group.add_argument(
        "--stems",
        type=names_of(STEMS),
        default=list(STEMS),
        metavar="NAME,NAME",
        help="first layers of the network (default: cifar,imagenet)",
    )
    group.add_argument(
        "--batches",
        type=counts,
        default=[8, 32, 128],
        metavar="N,N",
        help="images per node and step (default: 8,32,128)",
    )
    group.add_argument(
        "--nodes",
        type=counts,
        default=[1, 2, 3, 4],
        metavar="N,N",
        help="numbers of nodes; efficiency is relative to 1 node (default: 1,2,3,4)",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("runs")
    group.add_argument(
        "--repeats", type=count, default=3, metavar="N", help="runs of each case (default: 3)"
    )
    group.add_argument(
        "--seconds-per-run",
        type=count,
        default=20,
        metavar="N",
        help="target duration of the steps of a run; slow systems take longer, because at least two"
        " steps after the warm-up are measured (default: 20)",
    )
    group.add_argument(
        "--timeout-seconds",
        type=count,
        default=1800,
        metavar="N",
        help="end a run that takes longer (default: 1800)",
    )
    group.add_argument(
        "--threads", type=count, default=1, metavar="N", help="threads per node (default: 1)"
    )
    group.add_argument(
        "--cluster", default="pi", metavar="NAME", help="name of the emulated cluster (default: pi)"
    )
    group.add_argument(
        "--local",
        action="store_true",
        help="run ranks on this machine instead of nodes: only to try out the benchmark",
    )
    group.add_argument(
        "--linpack",
        type=linpack_link,
        metavar="FILE",
        help="predict from the ping-pong results in this linpack.json of a cluster (default: from"
        " all-reduces that are measured first)",
    )
    group.add_argument(
        "--resume", action="store_true", help="continue with the results in --output"
    )
    group.add_argument(
        "--output",
        type=Path,
        default=Path("runs/bench-scaling"),
        metavar="DIR",
        help="folder for tables, results and plots (default: runs/bench-scaling)",
    )


def linpack_link(text: str) -> LinkModel:
    try:
        return read_linpack_link(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Find errors that would otherwise show up only after some runs."""
    images = max(options.batches) * max(options.nodes)
    if images > COUNTS["train"]:
        parser.error(f"a step would need {images:,} images; the data set has {COUNTS['train']:,}")
    try:
        for name in options.compressions:
            parse_train_options(["--compression", name])
    except EdgeddlError as error:
        parser.error(str(error))
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--output {options.output}: {error.strerror}")


def conditions(
    options: argparse.Namespace, launcher: Launcher, torch_python: Path | None
) -> dict[str, Any]:
    """Return the conditions that must be equal for comparable measurements."""
    facts = describe_machine(torch_python)
    versions = {f"version of {name}": version for name, version in facts["versions"].items()}
    nodes = {"cluster": launcher.describe(), "threads": options.threads}
    return {**facts["machine"], **versions, **nodes}


def open_results(
    parser: argparse.ArgumentParser, options: argparse.Namespace, conditions: dict[str, Any]
) -> Results:
    results = Results(options.output / "results.json", conditions)
    if results.path.exists():
        if not options.resume:
            parser.error(f"{results.path} exists; continue with --resume, or use another --output")
        try:
            results.load()
        except ConditionsDiffer as error:
            parser.error(f"{results.path} was measured under different conditions:\n  {error}")
        except UnreadableResults as error:
            parser.error(
                f"{results.path} was not written by this benchmark, or is damaged: {error}"
            )
    return results


def run(benchmark: Benchmark, runs: list[Run], results: Results, options: dict[str, Any]) -> int:
    """Measure and publish; an interrupted benchmark publishes its results so far."""
    code = 0
    try:
        benchmark.measure_all(runs, results)
    except KeyboardInterrupt:
        done = sum(run in results for run in runs)
        print(f"interrupted after {done} of {len(runs)} runs; continue with --resume")
        code = EXIT_INTERRUPTED
    if len(results):
        publish(results, benchmark.launcher, options)
    if results.failures:
        print(render_failures(results.failures), file=sys.stderr)
    return code or (EXIT_FAILED if results.failures else 0)


def publish(results: Results, launcher: Launcher, options: dict[str, Any]) -> None:
    """Print and save the tables, save all results as JSON, and draw plots."""
    output = results.path.parent
    rows = make_rows(results, launcher.link_mbit)
    # no prediction from ranks that share this machine's cores
    linpack = options.get("linpack") if launcher.link_mbit(1) else None
    text = render_tables(results, rows, linpack)
    print(f"\n{text}\n")
    (output / "results.txt").write_text(f"{text}\n")
    shown = {
        name: str(value) if isinstance(value, Path | LinkModel) else value
        for name, value in options.items()
    }
    results.write(options=shown, rows=[row.to_json() for row in rows])
    if find_spec("matplotlib") is None:
        print("no plots: matplotlib is not installed (python -m pip install matplotlib)")
    else:
        for stem in dict.fromkeys(row.case.stem for row in rows):
            of_stem = [row for row in rows if row.case.stem == stem]
            plot_stem(of_stem, output / f"scaling-{stem}.png")
    print(f"results are in {output}")


def render_tables(results: Results, rows: list[Row], linpack: LinkModel | None = None) -> str:
    if not (linpack or results.allreduces):
        return render_report(rows)
    link = linpack or fit_link(results.allreduces)
    report = render_report(rows, make_predictors(rows, link, step_payloads))
    return f"{report}\n\n{render_link(link, results.allreduces)}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoCluster as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
