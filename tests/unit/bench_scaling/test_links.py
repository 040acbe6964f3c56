"""scripts/bench-scaling: measurements of links."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench_scaling.calibration import SIZES, measure_links, read_linpack_link
from bench_scaling.launcher import LocalLauncher

from edgeddl.comm.model import LinkModel, Timing


class LinksOf(LocalLauncher):
    """A launcher whose all-reduces take a second per node; records the numbers of nodes."""

    def link_mbit(self, nodes: int) -> float | None:
        return 940.0

    def __init__(self) -> None:
        self.asked: list[int] = []

    def run(
        self, command: Sequence[str], nodes: int, timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        self.asked.append(nodes)
        sizes = command[command.index("--sizes") + 1].split(",")
        rows = [{"size_bytes": int(size), "seconds": float(nodes)} for size in sizes]
        Path(command[-1]).write_text(json.dumps({"rows": rows}))
        return subprocess.CompletedProcess(command, 0, "")


def test_links_are_measured_on_each_number_of_nodes_once() -> None:
    launcher = LinksOf()
    first = measure_links(launcher, [1, 4], [])
    assert first == [Timing(4, size, 4.0) for size in SIZES]
    more = measure_links(launcher, [1, 2, 4], first)
    assert more == [*first, *(Timing(2, size, 2.0) for size in SIZES)]
    assert launcher.asked == [4, 2]


def test_links_are_measured_again_if_a_size_is_missing() -> None:
    launcher = LinksOf()
    incomplete = [Timing(4, size, 9.0) for size in SIZES[1:]]
    assert measure_links(launcher, [4], incomplete) == [Timing(4, size, 4.0) for size in SIZES]


def test_ranks_of_one_machine_have_no_links() -> None:
    assert measure_links(LocalLauncher(), [1, 2], []) == []


def test_links_from_the_linpack_stage(tmp_path: Path) -> None:
    figures = tmp_path / "linpack.json"
    link = {"latency_seconds": 1e-4, "bytes_per_second": 113e6}
    figures.write_text(json.dumps({"cluster": {"link": link}}))
    assert read_linpack_link(figures) == LinkModel(1e-4, 113e6)


@pytest.mark.parametrize("content", ["", "{}", '{"cluster": {"link": null}}'])
def test_a_linpack_result_without_links(content: str, tmp_path: Path) -> None:
    figures = tmp_path / "linpack.json"
    figures.write_text(content)
    with pytest.raises(ValueError, match="no link measurements"):
        read_linpack_link(figures)


def test_an_absent_linpack_result(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_linpack_link(tmp_path / "nowhere.json")
