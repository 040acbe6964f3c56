"""Measures the links with `python -m edgeddl bench allreduce` on each number of nodes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench_scaling.launcher import Launcher
from edgeddl.comm.model import LinkModel, Timing

# from a size dominated by latency to ResNet-18's gradients
SIZES = (4 * 2**10, 2**20, 4 * 2**20, 16 * 2**20, 44_695_848)
TIMEOUT_SECONDS = 300.0


def measure_links(
    launcher: Launcher, all_nodes: Sequence[int], known: Sequence[Timing]
) -> list[Timing]:
    """Return the ring's times on each number of nodes; measure those that are not known.

    Returns nothing for ranks on one machine.
    """
    if launcher.link_mbit(1) is None:
        return []
    pairs = {(one.ranks, one.payload_bytes) for one in known}
    kept = [one for one in known if all((one.ranks, size) in pairs for size in SIZES)]
    unknown = [nodes for nodes in all_nodes if nodes not in {1, *(one.ranks for one in kept)}]
    return [*kept, *(timing for nodes in unknown for timing in _measure(launcher, nodes))]


def _measure(launcher: Launcher, nodes: int) -> list[Timing]:
    with tempfile.TemporaryDirectory(prefix="bench-scaling-") as folder:
        report = Path(folder) / "allreduce.json"
        bench = ["python", "-m", "edgeddl", "bench", "allreduce", "--algorithms", "ring"]
        sizes = ",".join(map(str, SIZES))
        launcher.run([*bench, "--sizes", sizes, "--json", str(report)], nodes, TIMEOUT_SECONDS)
        if not report.exists():  # the benchmark's own runs will show the error
            return []
        rows = json.loads(report.read_text())["rows"]
    return [Timing(nodes, row["size_bytes"], row["seconds"]) for row in rows]


def read_linpack_link(path: Path) -> LinkModel:
    """Read the links measured by `python -m edgeddl linpack --engine hpl --hosts ...`.

    Uses the ping-pong of the slowest pair: a ring is as fast as its slowest link. Raises ValueError
    if the file has no such results.
    """
    try:
        link = json.loads(path.read_text())["cluster"]["link"]
        return LinkModel(link["latency_seconds"], link["bytes_per_second"])
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, json.JSONDecodeError):
        raise ValueError(
            f"{path} has no link measurements: LINPACK was not run on a cluster"
        ) from None
