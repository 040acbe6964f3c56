"""python -m edgeddl linpack: options, and the steps of the measurement."""

from __future__ import annotations

import argparse
import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgeddl import log, machine
from edgeddl.atomic_file import check_output_path, write_json
from edgeddl.errors import ConfigError
from edgeddl.linpack import numpy_engine
from edgeddl.linpack.blas_choice import choose_blas, measure_processor_share
from edgeddl.linpack.cluster import (
    ClusterOutcome,
    find_slow_hosts,
    judge_cluster,
    measure_alone,
    measure_together,
    read_hosts,
)
from edgeddl.linpack.figures import NodeFigures
from edgeddl.linpack.hpcc import Launch, check_installed, cluster_network, run_hpcc
from edgeddl.linpack.hpcc_input import plan_hpcc
from edgeddl.linpack.hpcc_output import HpccResult
from edgeddl.linpack.memory import available_bytes
from edgeddl.linpack.problem import size_for_memory
from edgeddl.linpack.processor import read_processor
from edgeddl.linpack.record import FORMAT, NodeRecord, make_record, record_path
from edgeddl.linpack.report import render_cluster, render_node
from edgeddl.linpack.verdict import EXIT_SICK, HEALTHY, SICK, judge_link
from edgeddl.log import logger

DESCRIPTION = """\
Measure how fast this machine computes. Solves a dense system of equations in double precision,
compares the speed with the peak of the processor and with published results, and reports likely
causes if it is slow. Takes about a minute; stop other programs first."""
EXIT_CODES = """\
exit code: 0 success; 2 LINPACK could not run; 4 a machine is sick (too slow, or a wrong result)

examples:
  edgeddl linpack                                    needs no other software
  edgeddl linpack --engine hpl                       HPL; needs sudo apt install hpcc
  edgeddl linpack --engine hpl --hosts pi-01,pi-02   each node alone, then all together
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXIT_CODES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--engine", choices=("numpy", "hpl"), default="numpy", help=(
        "numpy (LAPACK of NumPy) or hpl (hpcc of Debian, with STREAM and ping-pong) (default:"
        " %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--size", type=int, metavar="N", help=(
        "number of equations (default: as many as --memory-fraction allows)"
    ))  # fmt: skip
    parser.add_argument("--memory-fraction", type=float, default=0.25, metavar="X", help=(
        "fraction of the available memory to use, within cgroup limits (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--memory-mib", type=int, metavar="N", help=(
        "available memory in MiB, if it is not detected"
    ))  # fmt: skip
    parser.add_argument("--threads", type=int, metavar="N", help=(
        "compute threads (default: cores of the host / its ranks, as in training)"
    ))  # fmt: skip
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help=(
        "for --engine numpy: number of systems to solve; the fastest counts (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--blas", choices=("auto", "openblas", "blis", "reference"),
        default="auto", help=(
            "for --engine hpl: BLAS library; auto tries those that are installed (default:"
            " %(default)s)"
        ),
    )  # fmt: skip
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument("--hosts", metavar="A,B", help=(
        "run on each of these hosts over ssh, then, with --engine hpl, on all of them together"
    ))  # fmt: skip
    hosts.add_argument("--hostfile", type=Path, metavar="FILE", help=(
        "like --hosts, with the hosts of an Open MPI hostfile, such as $VIRTUAL_ENV/etc/"
        "prte-default-hostfile"
    ))  # fmt: skip
    parser.add_argument("--network", metavar="CIDR", help=(
        "network between the hosts (default: that of the environment's Open MPI settings)"
    ))  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE", help=(
        "also write the result to FILE; it is always saved as linpack.json in the state folder"
    ))  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Measure, print and save; the exit code says whether a machine is sick."""
    _check(options)
    if options.hosts is None and options.hostfile is None:
        record = _measure(options)
        own: NodeRecord | None = record
        content, text, rating = record.to_json(), render_node(record), record.verdict.rating
    else:
        outcome = _measure_cluster(options)
        own = _find_own(outcome)
        content, text, rating = _with(own, outcome), render_cluster(outcome), outcome.verdict.rating
    # Print before writing: writing may fail, after minutes of measuring.
    log.print_text(json.dumps(content, indent=1) if options.json else text)
    if own:
        _write(record_path(), content)
    if options.output:
        _write(options.output, content)
    return EXIT_SICK if rating == SICK else 0


def _check(options: argparse.Namespace) -> None:
    for name in ("size", "memory_mib", "threads", "repeats"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be above 0, not {value}")
    if not 0 < options.memory_fraction <= 0.9:
        raise ConfigError(
            f"--memory-fraction must be above 0 and at most 0.9, not {options.memory_fraction:g}",
            hint="other programs need memory, too",
        )
    if options.output:
        check_output_path("--output", options.output)
    if options.hosts is None and options.hostfile is None:
        hint = "set EDGEDDL_STATE to a writable folder"
        check_output_path("the result in", record_path(), hint=hint)


def _measure(options: argparse.Namespace) -> NodeRecord:
    """Measure this machine."""
    memory = options.memory_mib * 2**20 if options.memory_mib else available_bytes()
    threads = options.threads or machine.default_threads()
    engine = _run_numpy if options.engine == "numpy" else _run_hpl
    figures = engine(options, memory * options.memory_fraction, threads)
    return make_record(socket.gethostname(), read_processor(), memory, figures)


def _run_numpy(options: argparse.Namespace, memory: float, threads: int) -> NodeFigures:
    n = options.size or size_for_memory(memory, numpy_engine.MATRICES)
    return numpy_engine.run_numpy(numpy_engine.Task(n, options.repeats, threads))


def _run_hpl(options: argparse.Namespace, memory: float, threads: int) -> NodeFigures:
    check_installed()
    blas = choose_blas(options.blas, threads)
    plan = plan_hpcc(options.size or size_for_memory(memory), ranks=1)
    logger.info(
        "running HPL with N = %s and the other tests of hpcc; this takes minutes", f"{plan.n:,}"
    )
    share = measure_processor_share(blas, threads)
    result, monitor = run_hpcc(plan, Launch(blas, threads), "hpcc")
    return NodeFigures(
        engine="hpl",
        blas=blas.name,
        threads=threads,
        n=plan.n,
        seconds=result.seconds,
        gflops=result.gflops,
        median_gflops=result.gflops,
        residual=result.residual,
        passed=result.passed,
        processor_share=share,
        throttled=monitor.throttled,
        hottest_celsius=monitor.hottest_celsius,
        stream=result.stream,
    )


def _measure_cluster(options: argparse.Namespace) -> ClusterOutcome:
    """Each node alone; then all together, if each one could be measured."""
    hosts = read_hosts(options.hosts, options.hostfile)
    nodes = measure_alone(hosts, _node_arguments(options))
    records = [node.record for node in nodes if node.record]
    if options.engine != "hpl" or len(hosts) == 1 or len(records) < len(hosts):
        return judge_cluster(nodes, None)
    threads = min(record.figures.threads for record in records)
    blas = choose_blas(_common_blas(records), threads)
    network = options.network or cluster_network()

    def launch(hosts: Any) -> Launch:
        return Launch(blas, threads, tuple(hosts), network)

    joint = measure_together(nodes, launch(hosts), options.size, options.memory_fraction)
    return judge_cluster(nodes, joint, find_slow_hosts(hosts, launch) if _is_slow(joint) else ())


def _common_blas(records: list[NodeRecord]) -> str:
    """The BLAS that is the fastest on most nodes."""
    names = [record.figures.blas for record in records]
    return max(names, key=names.count)


def _is_slow(joint: HpccResult) -> bool:
    return joint.link is not None and judge_link(joint.link).rating != HEALTHY


def _node_arguments(options: argparse.Namespace) -> list[str]:
    """The options that are passed to each node."""
    names = ("engine", "size", "memory_fraction", "memory_mib", "threads", "repeats", "blas")
    given = [(name, getattr(options, name)) for name in names]
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in given if value]
    return [word for pair in pairs for word in pair]


def _find_own(outcome: ClusterOutcome) -> NodeRecord | None:
    """The record of this machine, if it is one of the nodes."""
    records = (node.record for node in outcome.nodes if node.record)
    return next((record for record in records if record.host == socket.gethostname()), None)


def _with(own: NodeRecord | None, outcome: ClusterOutcome) -> dict[str, Any]:
    """The record of this machine with the result of the cluster added."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    beside = own.to_json() if own else {"format": FORMAT, "time": now}
    return beside | {"cluster": outcome.to_json()}


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        write_json(path, content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    logger.info("result saved to %s", path)
