"""Training throughput on 1 to N nodes: edgeddl, PyTorch's DistributedDataParallel and ChainerMN.

Systems take turns in short runs on the nodes of an emulated cluster: the one that is up, or one
that is made for the benchmark and goes with it (which needs root).

All train ResNet-18 with the same batch a node. What has been measured is kept after each run: an
interrupted benchmark goes on with --resume. PyTorch takes part where it is installed: --with-torch
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
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: no job shall outlive us
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
    """All runs on these nodes, and the report."""
    if launcher.node_count and max(options.nodes) > launcher.node_count:
        parser.error(f"--nodes {max(options.nodes)}: the cluster has {launcher.node_count}")
    torch_python = find_torch(options) if TORCH in options.systems else None
    systems = make_systems(launcher, options.threads, torch_python)
    if TORCH in options.systems and torch_python is None:
        if not systems.keys() & options.systems:
            parser.error("--systems torch: PyTorch is not installed; --with-torch installs it")
        print("without PyTorch: it is not installed; --with-torch installs it", flush=True)
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
    _add_tasks(parser)
    _add_course(parser)
    add_torch_options(parser)
    return parser


def _add_tasks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--systems",
        type=names_of(SYSTEMS),
        default=list(SYSTEMS),
        metavar="NAME,NAME",
        help=f"of {', '.join(SYSTEMS)} (default: all)",
    )
    group.add_argument(
        "--compressions",
        type=lambda text: text.split(","),
        default=[UNCOMPRESSED, "fp16"],
        metavar="NAME,NAME",
        help="what edgeddl's gradients travel as: its option --compression (default: none,fp16)",
    )
    group.add_argument(
        "--balances",
        type=names_of(BALANCES),
        default=[EVEN],
        metavar="NAME,NAME",
        help="how edgeddl's nodes share a batch, where they are not equally fast: its option"
        " --balance, even or auto (default: even)",
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
        help="images a node in each step (default: 8,32,128)",
    )
    group.add_argument(
        "--nodes",
        type=counts,
        default=[1, 2, 3, 4],
        metavar="N,N",
        help="how many nodes train together (default: 1,2,3,4); efficiency needs the 1",
    )


def _add_course(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how")
    group.add_argument(
        "--repeats", type=count, default=3, metavar="N", help="runs of each (default: 3)"
    )
    group.add_argument(
        "--seconds-per-run",
        type=count,
        default=20,
        metavar="N",
        help="what the steps of a run shall take; slow ones take longer, for there are at least"
        " two besides the warm-up (default: 20)",
    )
    group.add_argument(
        "--timeout-seconds",
        type=count,
        default=1800,
        metavar="N",
        help="end a run that takes longer (default: 1800)",
    )
    group.add_argument(
        "--threads", type=count, default=1, metavar="N", help="threads a node (default: 1)"
    )
    group.add_argument(
        "--cluster", default="pi", metavar="NAME", help="the emulated cluster's name (default: pi)"
    )
    group.add_argument(
        "--local",
        action="store_true",
        help="ranks on this machine in place of nodes: tries the benchmark out, measures nothing",
    )
    group.add_argument(
        "--linpack",
        type=linpack_link,
        metavar="FILE",
        help="predict by the ping-pong of this linpack.json of a cluster (default: by all-reduces"
        " that are measured first)",
    )
    group.add_argument(
        "--resume", action="store_true", help="go on with what is in --output: skip what is there"
    )
    group.add_argument(
        "--output",
        type=Path,
        default=Path("runs/bench-scaling"),
        metavar="DIR",
        help="folder for table, figures and plots (default: runs/bench-scaling)",
    )


def linpack_link(text: str) -> LinkModel:
    try:
        return read_linpack_link(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """What would only be found after other runs have been made."""
    images = max(options.batches) * max(options.nodes)
    if images > COUNTS["train"]:
        parser.error(f"a step would take {images:,} images; there are {COUNTS['train']:,}")
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
    """What has to be the same for measurements that are compared."""
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
            parser.error(f"{results.path} is there: --resume goes on with it, or another --output")
        try:
            results.load()
        except ConditionsDiffer as error:
            parser.error(f"{results.path} was measured under other conditions:\n  {error}")
        except UnreadableResults as error:
            parser.error(f"{results.path} is not of this benchmark, or damaged: {error}")
    return results


def run(benchmark: Benchmark, runs: list[Run], results: Results, options: dict[str, Any]) -> int:
    """Measure and publish; an interrupted benchmark publishes what it has."""
    code = 0
    try:
        benchmark.measure_all(runs, results)
    except KeyboardInterrupt:
        done = sum(run in results for run in runs)
        print(f"interrupted: {done} of {len(runs)} runs are there; --resume goes on")
        code = EXIT_INTERRUPTED
    if len(results):
        publish(results, benchmark.launcher, options)
    if results.failures:
        print(render_failures(results.failures), file=sys.stderr)
    return code or (EXIT_FAILED if results.failures else 0)


def publish(results: Results, launcher: Launcher, options: dict[str, Any]) -> None:
    """Table on the screen and in a file, all figures as JSON, plots."""
    output = results.path.parent
    rows = make_rows(results, launcher.link_mbit)
    # ranks that share this machine's cores say nothing of more nodes
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
        print("no plots: matplotlib is not installed; python -m pip install matplotlib")
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
