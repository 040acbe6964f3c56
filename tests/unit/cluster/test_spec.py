"""Specifications of clusters, valid and invalid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.emulate.spec import (
    ClusterSpec,
    check_cores,
    check_name,
    command_line,
    parse_memory,
    parse_override,
    parse_rate,
    plan_cluster,
    room_warning,
)
from cluster.errors import ClusterError

DEFAULTS = {"cores": 0.35, "rate_mbit": 940.0, "memory_bytes": 4 * 2**30}


def plan(count: int = 4, **settings: Any) -> ClusterSpec:
    return plan_cluster(count=count, **{"defaults": DEFAULTS, **settings})


def test_nodes_are_numbered_in_names_and_addresses() -> None:
    spec = plan(3, name="lab", network="10.1.2.0/24")
    assert [(node.name, node.address) for node in spec.nodes] == [
        ("lab-01", "10.1.2.1"),
        ("lab-02", "10.1.2.2"),
        ("lab-03", "10.1.2.3"),
    ]
    assert (spec.head.name, spec.host_address, spec.prefix_length) == ("lab-01", "10.1.2.254", 24)


def test_names_sort_by_number_beyond_a_hundred_nodes() -> None:
    names = [node.name for node in plan(101).nodes]
    assert names == sorted(names) and names[0] == "pi-001"


def test_one_node_may_differ() -> None:
    spec = plan(2, overrides=["pi-02:cpu=0.1,memory=512M", "pi-02:rate=100"])
    first, second = spec.nodes
    assert (first.cores, first.rate_mbit, first.memory_bytes) == (0.35, 940, 4 * 2**30)
    assert (second.cores, second.rate_mbit, second.memory_bytes) == (0.1, 100, 512 * 2**20)


def test_a_spec_round_trips_through_json() -> None:
    spec = plan(2, kind="machine", suite="trixie", arch="arm64")
    assert ClusterSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": 0}, "--nodes 0: expected at least one"),
        ({"count": 254}, "has addresses for 253 nodes"),
        ({"network": "10.0.0.0/31"}, "has addresses for 0 nodes"),
        ({"network": "10.0.0.1/24"}, "host bits"),
        ({"network": "8.8.8.0/24"}, "not private"),
        ({"network": "127.0.0.0/24"}, "not private"),
        ({"network": "240.1.0.0/24"}, "not private"),
        ({"network": "10.0.0.0/7"}, "not private"),
        ({"network": "nonsense"}, "--network nonsense"),
        ({"overrides": ["pi-05:cpu=1"]}, "nodes are pi-01"),
        ({"overrides": ["pi-01"]}, "unknown setting"),
        ({"overrides": ["pi-01:disk=1"]}, "unknown setting 'disk'"),
        ({"overrides": ["pi-01:cpu"]}, "--node pi-01:cpu: expected a number"),
        ({"defaults": {**DEFAULTS, "cores": 0.0}}, "pi-01: cpu"),
        ({"defaults": {**DEFAULTS, "cores": float("nan")}}, "pi-01: cpu"),
        ({"defaults": {**DEFAULTS, "cores": 1e9}}, "pi-01: cpu"),
        ({"defaults": {**DEFAULTS, "rate_mbit": float("inf")}}, "pi-01: rate"),
        ({"defaults": {**DEFAULTS, "rate_mbit": 1e9}}, "expected 0.1 to 100,000, not 1e"),
        ({"defaults": {**DEFAULTS, "memory_bytes": 2**20}}, "pi-01: memory in MiB: .* not 1$"),
        ({"defaults": {**DEFAULTS, "memory_bytes": 2**70}}, "pi-01: memory"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        plan(**settings)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "Pi", "1pi", "a-b", "abcdefghij", "pi\n"])
def test_invalid_cluster_names_are_rejected(name: str) -> None:
    with pytest.raises(ClusterError, match="--name"):
        check_name(name)


@pytest.mark.parametrize(
    ("text", "mbit"), [("940", 940), ("100mbit", 100), ("1gbit", 1000), ("500kbit", 0.5)]
)
def test_rates(text: str, mbit: float) -> None:
    assert parse_rate(text, "--rate") == mbit


@pytest.mark.parametrize(("text", "size"), [("4G", 2**32), ("512M", 2**29), ("1.5g", 3 * 2**29)])
def test_sizes(text: str, size: int) -> None:
    assert parse_memory(text, "--memory") == size


@pytest.mark.parametrize("text", ["", "4", "4K", "G", "xG", "infG", "nanM"])
def test_invalid_sizes_name_their_option(text: str) -> None:
    with pytest.raises(ClusterError, match="--memory: expected"):
        parse_memory(text, "--memory")


def test_an_override_is_parsed() -> None:
    assert parse_override("pi-03:cpu=0.1,rate=1gbit") == (
        "pi-03",
        {"cores": 0.1, "rate_mbit": 1000.0},
    )


@pytest.mark.parametrize("network", ["172.31.0.0/16", "192.168.5.0/28", "100.64.0.0/24"])
def test_private_networks(network: str) -> None:
    assert plan(1, network=network).network == network


def test_no_node_can_have_more_cores_than_the_machine() -> None:
    nodes = plan(2, overrides=["pi-02:cpu=2.5"]).nodes
    check_cores(nodes, host_cores=3)
    with pytest.raises(ClusterError, match=r"pi-02: cpu: .* 2 cores, not 2\.5"):
        check_cores(nodes, host_cores=2)


def test_a_warning_if_nodes_leave_too_little_cpu_time() -> None:
    assert room_warning(plan(4), host_cores=2) is None
    assert "1.75 of this machine's 2 cores" in str(room_warning(plan(5), host_cores=2))


def test_commands_name_the_cluster_unless_it_is_the_default() -> None:
    assert command_line("pi", "down") == "python -m cluster.emulate down"
    assert command_line("lab", "down") == "python -m cluster.emulate --name lab down"
