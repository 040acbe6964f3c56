"""The LINPACK stage on emulated nodes, over ssh, as on boards."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from edgeddl.linpack.hpcc import PROGRAMS, SYSTEM_PATH
from tests.cluster.emulator import Emulator
from tests.cluster.fab import Fab

pytestmark = pytest.mark.cluster

LINPACK = ("python", "-m", "edgeddl", "linpack")
HAS_HPCC = all(shutil.which(name, path=SYSTEM_PATH) for name in PROGRAMS)


def test_each_node_alone_keeps_its_own_result(three_nodes: Emulator) -> None:
    hosts = [three_nodes.node(number) for number in (1, 2)]
    arguments = ("--hosts", ",".join(hosts), "--size", "300", "--repeats", "1", "--json")
    value = json.loads(three_nodes.on(1, *LINPACK, *arguments))
    assert value["host"] == hosts[0]
    assert value["cluster"]["hosts"] == hosts
    assert [node["host"] for node in value["cluster"]["nodes"]] == hosts
    for number, host in enumerate(hosts, start=1):
        kept = json.loads(three_nodes.on(number, "sh", "-c", "cat $EDGEDDL_STATE/linpack.json"))
        assert (kept["host"], kept["n"], kept["passed"]) == (host, 300, True)


@pytest.fixture
def fab(three_nodes: Emulator) -> Iterator[Fab]:
    fab = Fab(three_nodes, longest_seconds=290)
    yield fab
    shutil.rmtree(fab.results, ignore_errors=True)


@pytest.mark.skipif(not HAS_HPCC, reason="Debian's hpcc is not installed: apt install hpcc")
def test_hpl_spans_two_nodes(three_nodes: Emulator, fab: Fab) -> None:
    hosts = [three_nodes.node(number) for number in (1, 2)]
    options = ("--engine", "hpl", "--", "--size", "400", "--blas", "openblas")
    done = fab("linpack", "-H", ",".join(hosts), *options)
    # 4 is allowed: the link may be slow on a busy machine
    assert done.returncode in (0, 4), done.stdout + done.stderr
    result = json.loads((fab.results / "linpack.json").read_text())
    assert [node["host"] for node in result["nodes"] if node["engine"] == "hpl"] == hosts
    cluster = result["cluster"]
    assert (cluster["n"], cluster["grid"], cluster["passed"]) == (400, [1, 2], True)
    assert re.search(rf"all together +{cluster['gflops']:.2f} ", done.stdout)
    # more than the link's 940 Mbit/s, because of bursts; memory is 10 times faster
    assert 0 < cluster["link"]["bytes_per_second"] < 2 * 940e6 / 8
    assert cluster["link"]["latency_seconds"] > 0
