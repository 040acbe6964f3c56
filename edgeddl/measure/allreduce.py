"""mpirun -np N edgeddl bench allreduce: time of all-reduces by size and algorithm."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl import log, machine
from edgeddl.atomic_file import write_json
from edgeddl.comm.agreement import run_as_rank, together
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.connect import connect
from edgeddl.comm.model import LinkModel, Timing, bus_bandwidth, fit_link
from edgeddl.errors import CommunicationError, ConfigError
from edgeddl.registry import ALGORITHMS
from edgeddl.table import render_table
from edgeddl.terminal import ProgressBar

# The smallest size shows the latency of a turn; the largest are the gradients of ResNet-18.
DEFAULT_SIZES = "4K,64K,1M,4M,16M,44695848"
PREDICTED_RANKS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Row:
    """The result for one size and algorithm; processor_seconds is the mean over ranks."""

    size_bytes: int
    algorithm: str
    seconds: float
    fastest_seconds: float
    processor_seconds: float
    bus_bytes_per_second: float
    line_rate_share: float | None  # None on a single host, which uses no link


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", default=DEFAULT_SIZES, metavar="S,S", help=(
        "sizes in bytes, or with suffix K or M; the largest default is the gradients of ResNet-18"
        " (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS), metavar="A,A", help=(
        "ring (pipelined, over TCP sockets), mpi (Open MPI, polled between sleeps), stock (Open"
        " MPI, which keeps a core busy) (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--link-mbit", type=float, default=940.0, metavar="X", help=(
        "line rate for comparison; TCP reaches 940 on gigabit Ethernet (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help=(
        "all-reduces per size and algorithm (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")


def run(options: argparse.Namespace) -> int:
    communicator = connect()
    log.set_rank(communicator.rank, communicator.size, communicator.host)
    return run_as_rank(communicator, lambda: _run(options, communicator))


def _run(options: argparse.Namespace, communicator: Communicator) -> int:
    sizes, algorithms = together(communicator, lambda: _check(options, communicator.size))
    cases = [(size, algorithm) for size in sizes for algorithm in algorithms]
    shown = ProgressBar(cases, "all-reduce", disable=communicator.rank != 0, leave=False)
    rows = [_measure(communicator, size, algorithm, options) for size, algorithm in shown]
    if communicator.rank == 0:
        _report(communicator, rows, options)
    communicator.close()
    return 0


def _check(options: argparse.Namespace, ranks: int) -> tuple[list[int], list[str]]:
    """Parse the sizes and algorithms; raises ConfigError if an option is wrong."""
    if ranks == 1:
        raise ConfigError(
            "bench allreduce needs at least two ranks",
            hint="start it with mpirun -np 4 edgeddl bench allreduce",
        )
    algorithms = options.algorithms.split(",")
    if unknown := [name for name in algorithms if name not in ALGORITHMS]:
        raise ConfigError(f"--algorithms: {unknown[0]!r} is not one of {', '.join(ALGORITHMS)}")
    if options.repeats < 1 or not options.link_mbit > 0:
        raise ConfigError("--repeats and --link-mbit must be above 0")
    return [parse_size(text) for text in options.sizes.split(",")], algorithms


def parse_size(text: str) -> int:
    """Bytes of a size such as "64K", "4M" or "44695848", rounded down to whole float32 numbers."""
    factor = {"K": 2**10, "M": 2**20}.get(text[-1:].upper(), 1)
    number = text if factor == 1 else text[:-1]
    if not number.isdecimal() or int(number) * factor < 4:
        raise ConfigError(f"--sizes: expected a size such as 64K, 4M or 44695848, not {text!r}")
    return int(number) * factor // 4 * 4


def _measure(
    communicator: Communicator, size: int, algorithm: str, options: argparse.Namespace
) -> Row:
    times = []
    expected = communicator.size * (communicator.size + 1) / 2
    for _ in range(options.repeats + 1):
        array = np.full(size // 4, communicator.rank + 1, np.float32)
        communicator.barrier()
        started, processor = time.perf_counter(), time.process_time()
        communicator.allreduce(array, algorithm)
        times.append((time.perf_counter() - started, time.process_time() - processor))
        if not (array == expected).all():
            raise CommunicationError(
                f"{algorithm} returned a wrong sum on rank {communicator.rank}"
            )
    by_rank = np.array(communicator.allgather(times[1:]))  # the first one includes connecting
    slowest = by_rank[:, :, 0].max(axis=0)
    seconds = float(np.median(slowest))
    bandwidth = bus_bandwidth(size, communicator.size, seconds)
    line_rate = options.link_mbit * 1e6 / 8
    return Row(
        size_bytes=size,
        algorithm=algorithm,
        seconds=seconds,
        fastest_seconds=float(slowest.min()),
        processor_seconds=float(np.median(by_rank[:, :, 1].mean(axis=0))),
        bus_bytes_per_second=bandwidth,
        line_rate_share=bandwidth / line_rate if communicator.medium == "network" else None,
    )


def _report(communicator: Communicator, rows: Sequence[Row], options: argparse.Namespace) -> None:
    ranks = communicator.size
    link = calibrate(rows, ranks)
    hosts = ", ".join(dict.fromkeys(communicator.hosts))
    log.print_text(f"all-reduce over {ranks} ranks on {hosts}\n")
    log.print_text(render_rows(rows))
    if link is not None:
        log.print_text("\n" + render_prediction(link, max(row.size_bytes for row in rows)))
    if options.json is not None:
        try:
            write_json(options.json, _to_json(communicator, rows, link, options))
        except OSError as error:
            raise ConfigError(f"--json {options.json}: {error.strerror}") from None
        log.print_text(f"\nresults  {options.json}")


def calibrate(rows: Sequence[Row], ranks: int) -> LinkModel | None:
    """Fit the link model to the results of the ring; None if there are too few."""
    ring = [Timing(ranks, row.size_bytes, row.seconds) for row in rows if row.algorithm == "ring"]
    return fit_link(ring) if len({timing.payload_bytes for timing in ring}) > 1 else None


def render_rows(rows: Sequence[Row]) -> str:
    headings = ["size", "algorithm", "time", "fastest", "processor", "bus MB/s"]
    cells = [
        [
            _size_text(row.size_bytes),
            row.algorithm,
            f"{row.seconds * 1e3:.2f} ms",
            f"{row.fastest_seconds * 1e3:.2f} ms",
            f"{row.processor_seconds * 1e3:.2f} ms",
            f"{row.bus_bytes_per_second / 1e6:.1f}",
            *([] if row.line_rate_share is None else [f"{row.line_rate_share:.1%}"]),
        ]
        for row in rows
    ]
    if any(row.line_rate_share is not None for row in rows):
        headings.append("of line rate")
    return render_table(headings, cells)


def render_prediction(link: LinkModel, size: int) -> str:
    """Predict the time of the ring for other numbers of ranks."""
    headings = ("ranks", "predicted", "bus MB/s")
    rows = []
    for ranks in PREDICTED_RANKS:
        seconds = link.allreduce_seconds(size, ranks)
        bandwidth = bus_bandwidth(size, ranks, seconds) / 1e6
        rows.append((str(ranks), f"{seconds * 1e3:.1f} ms", f"{bandwidth:.1f}"))
    return (
        f"prediction for {_size_text(size)}: 2 (N - 1) turns of {link.turn_seconds * 1e3:.2f} ms"
        f" and {link.bytes_per_second / 1e6:.1f} MB/s per link:\n\n" + render_table(headings, rows)
    )


def _size_text(size: int) -> str:
    if size >= 10**6 and size % 2**20:
        return f"{size / 1e6:.1f} MB"
    if size < 2**10:
        return f"{size} B"
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"


def _to_json(
    communicator: Communicator,
    rows: Sequence[Row],
    link: LinkModel | None,
    options: argparse.Namespace,
) -> dict[str, Any]:
    return {
        "ranks": communicator.size,
        "hosts": communicator.hosts,
        "link_mbit": options.link_mbit,
        "repeats": options.repeats,
        "versions": machine.versions(),
        "rows": [asdict(row) for row in rows],
        "model": asdict(link) if link else None,
    }
