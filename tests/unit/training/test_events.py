"""The events and logs of a run, as they are in its folder."""

from __future__ import annotations

import json
import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgeddl import hardware, log
from edgeddl.errors import EdgeddlError
from edgeddl.training.telemetry import RankStep
from tests.support import REPOSITORY
from tests.unit.training.training_runs import train


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def of_kind(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in events(folder) if event["event"] == kind]


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    summary = train(tmp_path, 2, checkpoint_every=4)
    first, *_, last = events(tmp_path)
    assert (first["event"], first["step"], first["total_steps"]) == ("start", 0, 8)
    assert first["options"] == json.loads((tmp_path / "options.json").read_text())
    assert [rank["host"] for rank in first["ranks"]] == ["thread-0", "thread-1"]
    assert (last["event"], last["outcome"]) == ("end", "finished")
    assert last["final_accuracy"] == summary["final_accuracy"]
    entries = [{k: e[k] for k in summary["history"][0]} for e in of_kind(tmp_path, "epoch")]
    assert entries == summary["history"]
    assert [event["step"] for event in of_kind(tmp_path, "checkpoint")] == [4, 8]


@pytest.mark.parametrize(
    ("line_every_seconds", "first_line_until"),
    [
        (math.inf, 2),  # those that pay for what is done once
        (0.0, 1),  # as if each step took longer than that
    ],
)
def test_each_step_has_its_loss_and_each_but_the_last_its_ranks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line_every_seconds: float,
    first_line_until: int,
) -> None:
    monkeypatch.setattr("edgeddl.training.extensions.events.LINE_EVERY_SECONDS", line_every_seconds)
    summary = train(tmp_path, 3, limit_train=50)
    lines = of_kind(tmp_path, "steps")
    losses = [loss for line in lines for loss in line["losses"]]
    assert losses == [pytest.approx(loss, rel=1e-5) for loss in summary["step_losses"]]
    assert lines[-1]["step"] == summary["steps"]
    assert sum(line["told_steps"] for line in lines) == summary["steps"] - 1
    told = [rank["images"] for line in lines for rank in line["ranks"]]
    last_step = 50 - 2 * 24
    assert sum(told) == 2 * 50 - last_step
    for line in lines:
        for rank in line["ranks"]:
            phases = sum(rank[name] for name in ("data", "forward", "backward", "update"))
            assert 0 < phases <= rank["seconds"]
            assert rank["memory_bytes"] > 2**20
    assert lines[0]["step"] == first_line_until
    assert {len(line["ranks"]) for line in lines if line["told_steps"]} == {3}


def test_sensors_of_the_board_are_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pi4 = partial(hardware.read_sensors, REPOSITORY / "tests" / "fixtures" / "pi4")
    monkeypatch.setattr(hardware, "read_sensors", pi4)
    train(tmp_path, 2)
    for line in of_kind(tmp_path, "steps"):
        for rank in line["ranks"]:
            assert rank["temperature_celsius"] == 81.303
            assert rank["clock_hertz"] == pytest.approx(1.0e9, rel=0.01)
            assert rank["throttling"] == 0x50005


def test_sensors_that_are_not_there_are_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "read_sensors", partial(hardware.read_sensors, tmp_path))
    train(tmp_path / "run")
    ranks = [rank for line in of_kind(tmp_path / "run", "steps") for rank in line["ranks"]]
    assert {rank["temperature_celsius"] for rank in ranks} == {None}
    assert {rank["throttling"] for rank in ranks} == {None}


def test_a_change_of_balance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {True: 4.0, False: 1.0}

    def of(clock: Any, images: int, vitals: Any) -> RankStep:
        return RankStep(
            seconds=images * slow[log.rank_prefix().startswith("[rank 1")], images=images
        )

    monkeypatch.setattr(RankStep, "of", staticmethod(of))
    summary = train(tmp_path, 2, balance="auto", epochs=6)
    changes = of_kind(tmp_path, "balance")
    assert changes[-1]["shares"] == [rank["batch_share"] for rank in summary["ranks"]]
    assert changes[0]["step"] > 0


def test_a_resumed_run_appends(tmp_path: Path) -> None:
    train(tmp_path, max_steps=3)
    train(tmp_path, resume="auto")
    assert [event["step"] for event in of_kind(tmp_path, "start")] == [0, 3]
    assert [event["outcome"] for event in of_kind(tmp_path, "end")] == ["finished", "finished"]


def test_a_run_that_fails_says_so(tmp_path: Path) -> None:
    with pytest.raises(EdgeddlError):
        train(tmp_path, lr=1e30)
    (end,) = of_kind(tmp_path, "end")
    assert end["outcome"] == "failed"
    assert "training has diverged" in end["error"]
    assert "training has diverged" in (tmp_path / "logs" / "rank-0.log").read_text()


@pytest.mark.parametrize("name", ["events.jsonl", "logs/rank-1.log"])
def test_a_full_disk_costs_a_warning_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    full = tmp_path / "full" / name
    full.parent.mkdir(parents=True)
    full.symlink_to("/dev/full")
    summary = train(tmp_path / "full", 2)
    assert summary["step_losses"] == train(tmp_path / "empty", 2)["step_losses"]
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [str(full) in record.getMessage() for record in warnings] == [True]
    assert "No space left on device" in warnings[0].getMessage()


def test_each_rank_has_a_log_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "edgeddl"):
        train(tmp_path, 2, progress="lines")
    first, second = ((tmp_path / "logs" / f"rank-{n}.log").read_text() for n in range(2))
    assert "epoch 2/2: mean loss" in first
    assert "epoch" not in second.partition("run  ")[2]
    assert all("global batch   16 = 8 per rank" in text for text in (first, second))


def test_logs_end_with_their_block(tmp_path: Path) -> None:
    with log.recording(tmp_path / "log"):
        log.logger.warning("within")
    log.logger.warning("after")
    with pytest.raises(ZeroDivisionError), log.recording(tmp_path / "log"):
        raise ZeroDivisionError("a bug")
    text = (tmp_path / "log").read_text()
    assert "warning: within" in text and "after" not in text
    assert "Traceback" in text and text.endswith("ZeroDivisionError: a bug\n")
