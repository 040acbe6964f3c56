"""Start and end of jobs and clusters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from bench_scaling import launcher
from bench_scaling.launcher import ClusterLauncher, run_job


def test_a_job_is_killed_after_its_timeout() -> None:
    done = run_job(["sh", "-c", "echo waiting; sleep 60"], timeout_seconds=0.5)
    assert done.returncode != 0
    assert done.stdout.split("\n")[0] == "waiting"
    assert done.stdout.endswith("timed out after 0.5 s")


def test_an_interrupted_up_can_clean_up(tmp_path: Path) -> None:
    """The script interrupts this process like Ctrl-C; it must be terminated and waited for."""
    script = """
        trap 'sleep 0.2; echo clean > "$0"; exit 1' TERM
        sleep 0.3; kill -s INT "$1"
        for turn in $(seq 100); do sleep 0.05; done
    """
    left = tmp_path / "left"
    with pytest.raises(KeyboardInterrupt):
        launcher._bring_up(["sh", "-c", script, str(left), str(os.getpid())])
    assert left.read_text() == "clean\n"


def test_links_are_those_of_the_nodes_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[dict[str, Any]] = [
        {"name": f"pi-0{number}", "address": "10.0.0.1", "rate_mbit": rate}
        for number, rate in enumerate((940, 1000, 100), 1)
    ]
    monkeypatch.setattr(ClusterLauncher, "_find_nodes", lambda self: nodes)
    assert [ClusterLauncher("pi").link_mbit(count) for count in (1, 2, 3)] == [940, 940, 100]
