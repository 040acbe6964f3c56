"""The timeline of a few steps, as Perfetto and Chrome read it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from edgeddl.comm.clock_offset import ClockFix
from edgeddl.errors import ConfigError
from edgeddl.training.trace import COMPUTE, RankTrace, Span, render_trace, to_rank_0
from tests.unit.training.training_runs import train

# Microseconds; floats of nanoseconds do not add up to the last bit.
ROUNDING = 1e-4
PHASES = {"data", "forward", "backward", "allreduce_wait", "update"}


def spans(trace: dict[str, Any], rank: int, track: str | None = None) -> list[dict[str, Any]]:
    """The spans of a rank, on one of its tracks or on all."""
    names = {
        event["args"]["name"]: event["tid"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name" and event["pid"] == rank
    }
    own = [event for event in trace["traceEvents"] if (event["ph"], event["pid"]) == ("X", rank)]
    return [event for event in own if track is None or event["tid"] == names[track]]


def end(span: dict[str, Any]) -> float:
    return span["ts"] + span["dur"]


def within(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    return inner["ts"] >= outer["ts"] - ROUNDING and end(inner) <= end(outer) + ROUNDING


def check_format(trace: dict[str, Any]) -> None:
    """As in the description of the format; on a track, spans lie within or beside each other."""
    assert trace["displayTimeUnit"] == "ms"
    for event in trace["traceEvents"]:
        assert event["ph"] in ("M", "X")
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
    drawn = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for _, track in itertools.groupby(
        sorted(drawn, key=lambda e: (e["pid"], e["tid"])), lambda e: (e["pid"], e["tid"])
    ):
        check_nesting(track)


def check_nesting(track: Iterable[dict[str, Any]]) -> None:
    around: list[dict[str, Any]] = []
    for span in sorted(track, key=lambda span: (span["ts"], -span["dur"])):
        while around and end(around[-1]) <= span["ts"] + ROUNDING:
            around.pop()
        assert not around or within(span, around[-1]), (span, around[-1])
        around.append(span)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "powersgd"},
        {"compression": "fp16", "accumulation": 2, "batch_size": 4},
        {"communicator": "naive"},
        {"local_steps": 2},
        {"model": "tests.models:StockNet"},
    ],
    ids=str,
)
def test_a_run_is_the_same_with_and_without(tmp_path: Path, options: dict[str, Any]) -> None:
    plain = train(tmp_path / "plain", 2, **options)
    file = tmp_path / "timeline.json"
    traced = train(tmp_path / "traced", 2, timeline=file, timeline_steps=2, **options)
    assert traced["step_losses"] == plain["step_losses"]
    assert traced["history"] == plain["history"]
    check_format(json.loads(file.read_text()))


def test_what_is_on_the_timeline(tmp_path: Path) -> None:
    file = tmp_path / "timeline.json"
    train(tmp_path / "run", 2, timeline=file, timeline_steps=2, bucket_mib=0.004)
    trace = json.loads(file.read_text())
    for rank in range(2):
        compute = spans(trace, rank, COMPUTE)
        steps = [span for span in compute if span["name"].startswith("step ")]
        assert [step["name"] for step in steps] == ["step 3", "step 4"]
        for step in steps:
            inner = [span for span in compute if within(span, step)]
            assert {span["name"] for span in inner} >= PHASES
            for direction in ("forward", "backward"):
                layers = [s for s in inner if s["args"].get("direction") == direction]
                assert {"first", "second", "head"} <= {layer["name"] for layer in layers}
                (phase,) = (span for span in inner if span["name"] == direction)
                assert all(within(layer, phase) for layer in layers)
        channels = spans(trace, rank, "channel 0") + spans(trace, rank, "channel 1")
        assert spans(trace, rank, "channel 0") and spans(trace, rank, "channel 1")
        for bucket in channels:
            assert bucket["name"].startswith("all-reduce ") and bucket["args"]["bytes_sent"] > 0
            assert any(within(bucket, step) for step in steps)
    processes = [
        event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"
    ]
    assert processes == ["rank 0 (thread-0)", "rank 1 (thread-1)"]
    assert trace["otherData"]["clock_uncertainty_microseconds"] > 0


def test_one_rank(tmp_path: Path) -> None:
    file = tmp_path / "timeline.json"
    train(tmp_path / "run", timeline=file, timeline_steps=1)
    trace = json.loads(file.read_text())
    check_format(trace)
    assert {event["pid"] for event in trace["traceEvents"]} == {0}


def test_a_run_that_ends_while_it_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "timeline.json"
    train(tmp_path / "run", 2, timeline=file, timeline_steps=100, max_steps=3)
    trace = json.loads(file.read_text())
    assert [s["name"] for s in spans(trace, 1) if s["name"].startswith("step")] == ["step 3"]


def test_a_run_too_short_for_a_timeline_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path / "run", 2, timeline=tmp_path / "timeline.json", max_steps=1)
    assert caplog.text.count("no timeline: the run ended before") == 1
    assert not (tmp_path / "timeline.json").exists()


def test_a_place_that_cannot_be_written_is_found_out_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--timeline"):
        train(tmp_path / "run", timeline=tmp_path)
    assert not (tmp_path / "run").exists()


def test_clocks_that_drift() -> None:
    """A clock that is 10 s behind, and loses a thousandth."""
    fixes = (ClockFix(100.0, 10.0, 0.001), ClockFix(200.0, 10.1, 0.0005))
    assert [to_rank_0(moment, fixes) for moment in (100.0, 150.0, 200.0)] == [
        110.0,
        pytest.approx(160.05),
        pytest.approx(210.1),
    ]
    own = ClockFix(110.0, 0.0, 0.0)
    here = RankTrace("a", [Span(COMPUTE, "step", 160.0, 161.0, {})], (own, own))
    there = RankTrace("b", [Span(COMPUTE, "step", 150.0, 151.0, {})], fixes)
    trace = render_trace([here, there])
    starts = [event["ts"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert starts == [0, pytest.approx(0.05e6)]
    assert trace["otherData"] == {"clock_uncertainty_microseconds": 1000.0}
