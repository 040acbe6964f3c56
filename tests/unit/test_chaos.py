"""The cases that scripts/chaos plans, and how it judges a run."""

from __future__ import annotations

import pytest
from chaos import Outcome, plan


def test_every_fault_strikes_the_first_and_the_last_rank_at_every_moment() -> None:
    host = plan(["host"], quick=False)
    assert len(host) == len(set(host)) == 2 * 2 * 4  # faults, ranks, moments
    nodes = plan(["nodes"], quick=False)
    # mpirun runs on the first node, so this node keeps its power and its network
    assert len(nodes) == 2 * 2 * 4 + 2 * 4
    assert {case.rank for case in nodes if case.fault in ("kill", "cut")} == {2}


def test_the_quick_form_needs_no_root() -> None:
    assert {case.system for case in plan(["host", "nodes"], quick=True)} == {"host"}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "ok"),
        ({"exit_code": None}, "HANG"),
        ({"exit_code": 0}, "FALSE SUCCESS"),
        ({"exit_code": 0, "complete": True}, "ok"),
        ({"left_over": 1}, "LEFT PROCESSES"),
        ({"missed": True, "exit_code": 0}, "missed"),
    ],
)
def test_verdicts(changes: dict[str, object], verdict: str) -> None:
    outcome: dict[str, object] = {
        "missed": False, "seconds": 1.0, "exit_code": 3, "complete": False, "left_over": 0,
        "output": "",
    }  # fmt: skip
    assert Outcome(**(outcome | changes)).verdict == verdict  # type: ignore[arg-type]
