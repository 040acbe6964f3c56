"""The persistent state of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.emulate.spec import plan_cluster
from cluster.emulate.state import ClusterState, clusters_of_machines
from cluster.errors import ClusterError

SHARES = {"cores": 0.35, "rate_mbit": 940.0, "memory_bytes": 2**30}


def make(root: Path, name: str, kind: str = "light") -> ClusterState:
    state = ClusterState(name, root)
    state.create()
    state.save(plan_cluster(name=name, kind=kind, count=1, defaults=SHARES), inventory="x.yml")
    return state


def test_spec_and_facts_are_loaded_again(tmp_path: Path) -> None:
    spec, facts = make(tmp_path, "lab").load()
    assert spec == plan_cluster(name="lab", count=1, defaults=SHARES)
    assert facts == {"inventory": "x.yml"}


def test_a_missing_cluster_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"'lab' is not up\n.*--name lab up"):
        ClusterState("lab", tmp_path).load()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"spec": {}}', '{"spec": {"nodes": [{"name": 1}]}}', '{"spec": 1}'],
)
def test_a_damaged_state_file_has_a_hint(tmp_path: Path, text: str) -> None:
    state = make(tmp_path, "lab")
    (state.folder / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=r"is damaged: (.|\n)*--name lab down"):
        state.load()


def test_removal_leaves_other_clusters_alone(tmp_path: Path) -> None:
    root = tmp_path / "edgeddl" / "clusters"
    first, second = make(root, "a"), make(root, "b")
    assert not first.is_last()
    first.remove()
    assert second.folder.exists() and second.is_last()
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_clusters_of_machines_are_listed(tmp_path: Path) -> None:
    make(tmp_path, "a"), make(tmp_path, "b", "machine"), ClusterState("c", tmp_path).create()
    assert clusters_of_machines(tmp_path) == ["b"]
