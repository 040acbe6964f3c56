"""Reading run folders: complete, resumed, truncated and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeddl.errors import ConfigError
from edgeddl.report.cli import describe_runs
from edgeddl.report.results import describe_run, losses, result_rows, results
from edgeddl.report.run import Run, read_run, read_runs, subsample
from tests.unit.training.training_runs import train

START: dict[str, Any] = {
    "event": "start", "time": 1000.0, "format": 1, "step": 0, "total_steps": 9,
    "options": {"epochs": 2}, "ranks": [{"host": "a", "cpu": "c", "threads": 1}],
}  # fmt: skip
RANK = {
    "seconds": 2.0, "data": 0.1, "forward": 0.5, "backward": 0.9, "allreduce_wait": 0.4,
    "update": 0.1, "images": 16, "memory_bytes": 2**20, "temperature_celsius": 60.0,
    "clock_hertz": 1.5e9, "throttling": 0,
}  # fmt: skip


def steps(step: int, time: float, *values: float, **rank: Any) -> dict[str, Any]:
    return {
        "event": "steps", "time": time, "step": step, "losses": list(values), "learning_rate": 0.1,
        "told_steps": len(values), "ranks": [RANK | rank],
    }  # fmt: skip


def write(folder: Path, *events: dict[str, Any] | str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    (folder / "events.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


def check_whole(run: Run, summary: dict[str, Any]) -> None:
    """The losses of each step, once."""
    assert [step for step, _ in losses(run)] == list(range(1, summary["steps"] + 1))
    assert [loss for _, loss in losses(run)] == pytest.approx(summary["step_losses"], rel=1e-5)
    assert [epoch["accuracy"] for epoch in run.epochs] == [
        e["accuracy"] for e in summary["history"]
    ]


def test_a_run(tmp_path: Path) -> None:
    summary = train(tmp_path, 2)
    run = read_run(tmp_path)
    check_whole(run, summary)
    assert (run.status, run.damaged_lines) == ("finished", 0)
    found = results(run)
    assert found["accuracy"] == summary["final_accuracy"]
    assert 0 < found["scaling_efficiency"] <= 1
    for name in ("images_per_second", "scaling_efficiency"):
        assert found[name] == summary[name]
    assert found["memory_bytes"] == max(rank["peak_memory_bytes"] for rank in summary["ranks"])
    shown = describe_run(run)["ranks"]
    for name in ("images_per_second", "peak_memory_bytes"):
        assert [rank[name] for rank in shown] == [rank[name] for rank in summary["ranks"]]
    assert json.loads(json.dumps(describe_run(run)))["ranks"][1]["host"] == "thread-1"


def test_a_resumed_run(tmp_path: Path) -> None:
    train(tmp_path, 2, max_steps=3)
    run = read_run(tmp_path)
    assert len(losses(run)) == 3
    summary = train(tmp_path, 2, resume="auto")
    run = read_run(tmp_path)
    check_whole(run, summary)
    assert [start["step"] for start in run.starts] == [0, 3]


def test_repeated_steps_count_once(tmp_path: Path) -> None:
    train(tmp_path, 2)
    first = tmp_path / "checkpoints" / "checkpoint-00000004.npz"
    summary = train(tmp_path, 2, resume=str(first), epochs=4)  # another schedule: other losses
    run = read_run(tmp_path)
    check_whole(run, summary)
    moments = [one.elapsed for one in run.steps]
    assert moments == sorted(moments)


@pytest.mark.parametrize("ranks", [(3, 2), (2, 3)])
def test_another_number_of_ranks(tmp_path: Path, ranks: tuple[int, int]) -> None:
    """The report keeps what was measured before the resume, and says how many ranks there were."""
    before, after = ranks
    train(tmp_path, before, max_steps=4, batch_size=2)
    summary = train(tmp_path, after, resume="auto", batch_size=2)
    run = read_run(tmp_path)
    check_whole(run, summary)
    assert {len(one.ranks) for one in run.measured} == {before, after}
    assert run.measured[0].first_step <= 4
    description = describe_run(run)
    assert [start["ranks"] for start in description["starts"]] == [before, after]
    assert len(description["ranks"]) == 3
    assert all(rank["images_per_second"] > 0 for rank in description["ranks"])
    assert 0 < description["results"]["scaling_efficiency"] <= 1
    assert ["ranks", f"{before}, then {after} from step 5"] in result_rows([run])


def test_going_back_to_an_earlier_number_of_ranks(tmp_path: Path) -> None:
    """Steps of 3 ranks that were repeated with 2 do not count."""
    two = [{"host": "a", "cpu": "c", "threads": 1}] * 2
    starts = [START, START | {"step": 4, "ranks": two}, START | {"step": 2}]
    run = read_run(write(tmp_path, *starts))
    assert run.rank_counts == [(0, 1)]
    run = read_run(write(tmp_path, *starts, START | {"step": 3, "ranks": two}))
    assert run.rank_counts == [(0, 1), (3, 2)]


def test_huge_losses_of_a_diverged_run_are_not_damage(tmp_path: Path) -> None:
    epoch = {"event": "epoch", "time": 1002.0, "epoch": 1, "step": 1, "loss": 8.5e20}
    run = read_run(write(tmp_path, START, steps(1, 1001.0, 8.5e20), epoch | {"test_loss": 1e300}))
    assert run.damaged_lines == 0
    assert run.epochs[0]["loss"] == 8.5e20


def test_cut_off_at_any_byte(tmp_path: Path) -> None:
    """While the file is being written, and after a power failure."""
    train(tmp_path, 2)
    content = (tmp_path / "events.jsonl").read_bytes()
    first_line = content.index(b"\n") + 1
    for size in range(first_line, len(content)):
        (tmp_path / "events.jsonl").write_bytes(content[:size])
        run = read_run(tmp_path)
        assert run.status == "open"
        assert run.damaged_lines == 0
        describe_run(run)
        result_rows([run])


@pytest.mark.parametrize(
    ("end", "last", "best"),
    [
        ({"outcome": "finished", "final_accuracy": 0.7}, 0.7, 0.7),  # by --max-steps
        ({"outcome": "finished", "final_accuracy": 0.4}, 0.4, 0.5),
        ({"outcome": "stopped", "final_accuracy": 0.5}, 0.5, 0.5),  # that of the epoch, repeated
        ({"outcome": "failed", "error": "a cable"}, 0.5, 0.5),
    ],
)
def test_accuracy_of_finished_and_unfinished_runs(
    tmp_path: Path, end: dict[str, Any], last: float, best: float
) -> None:
    epoch = {"event": "epoch", "time": 1002.0, "epoch": 1, "step": 1, "accuracy": 0.5}
    lines = [steps(1, 1002.0, 2.5), epoch, steps(2, 1003.0, 2.4)]
    write(tmp_path, START, *lines, {"event": "end", "time": 1004.0, **end})
    run = read_run(tmp_path)
    found = results(run)
    assert max(one["accuracy"] for one in run.evaluations) == best  # what the plot shows
    assert len(run.evaluations) == (2 if end["outcome"] == "finished" else 1)
    assert (found["accuracy"], found["best_accuracy"]) == (last, best)


def test_damaged_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    odd = ('{"event": "steps", "time"', "\0\0\0", "", '{"event": "steps", "time": 3}', "[]", "7",
           '{"event": "newer", "time": 5, "what": 1}')  # fmt: skip
    write(tmp_path, START, *odd, steps(1, 1002.0, 2.5))
    run = read_run(tmp_path)
    assert run.damaged_lines == 4
    assert losses(run) == [(1, 2.5)]


def test_a_line_of_brackets_is_damaged(tmp_path: Path) -> None:
    write(tmp_path, START, "[" * 100_000, '{"event":' * 100_000, steps(1, 1002.0, 2.5))
    run = read_run(tmp_path)
    assert (run.damaged_lines, losses(run)) == (2, [(1, 2.5)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(kind=st.sampled_from(["start", "steps", "epoch", "end"]), data=st.data())
def test_values_of_a_wrong_type_are_rejected_or_skipped(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    whole: dict[str, dict[str, Any]] = {
        "start": START | {"step": 2},
        "steps": steps(2, 1003.0, 2.4),
        "epoch": {"event": "epoch", "time": 1004.0, "epoch": 1, "step": 2, "accuracy": 0.5},
        "end": {"event": "end", "time": 1005.0, "outcome": "finished", "final_accuracy": 0.5},
    }
    spoiled = dict(whole[kind])
    keys = [key for key in spoiled if key not in ("event", "format")]
    spoiled[data.draw(st.sampled_from(keys))] = data.draw(JSON)
    folder = write(tmp_path_factory.mktemp("run"), START, steps(1, 1002.0, 2.5), spoiled)
    result_rows([run := read_run(folder)])
    describe_run(run)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "no such folder"),
        (lambda folder: folder.mkdir(), "it contains no events.jsonl"),
        (lambda folder: folder.write_text("x"), "not a folder"),
        (lambda folder: (folder / "events.jsonl").mkdir(parents=True), "cannot read events.jsonl"),
        (lambda folder: write(folder), "contains no start event"),
        (lambda folder: write(folder, "nonsense", steps(1, 0, 1)), "contains no start event"),
        (lambda folder: write(folder, START | {"format": 99}), "has format 99"),
    ],
)
def test_not_a_run_folder(tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "run")
    with pytest.raises(ConfigError, match=message) as caught:
        read_run(tmp_path / "run")
    assert str(tmp_path / "run") in caught.value.message
    assert caught.value.hint


def test_means_leave_out_the_first_steps_after_a_start(tmp_path: Path) -> None:
    folder = write(
        tmp_path, START, steps(2, 1010.0, 2.5, 2.4, seconds=100.0), steps(3, 1012.0, 2.3)
    )
    assert results(read_run(folder))["images_per_second"] == 8.0
    only = write(tmp_path, START, steps(2, 1010.0, 2.5, 2.4, seconds=100.0))
    assert results(read_run(only))["images_per_second"] == 0.16


def test_efficiency_is_throughput_over_that_without_waiting(tmp_path: Path) -> None:
    folder = write(tmp_path, START, steps(3, 1002.0, 2.5))
    found = results(read_run(folder))
    assert found["scaling_efficiency"] == pytest.approx(1.6 / 2.0)
    assert found["wait_share"] == pytest.approx(0.2)


def test_throttling(tmp_path: Path) -> None:
    first, second = steps(3, 1002.0, 2.5), steps(4, 1004.0, 2.4, throttling=0x50005)
    assert results(read_run(write(tmp_path, START, first)))["slowed"] is False
    assert results(read_run(write(tmp_path, START, first, second)))["slowed"] is True
    unknown = steps(3, 1002.0, 2.5, throttling=None)
    assert results(read_run(write(tmp_path, START, unknown)))["slowed"] is None


def test_long_runs_are_subsampled(tmp_path: Path) -> None:
    lines = [steps(3 + n, 1002.0 + n, 2.5, throttling=4 * (n == 5)) for n in range(1001)]
    run = read_run(write(tmp_path, START, *lines))
    few = subsample(run.measured, most=100)
    assert len(few) == 91
    assert sum(one.images for one in few) == 1001 * 16
    assert sum(one.reported for one in few) == 1001
    assert [one.ranks[0]["throttling"] for one in few[:2]] == [4, 0]


def test_runs_of_the_same_name_get_distinct_names(tmp_path: Path) -> None:
    options = {"epochs": 2, "compression": "none", "run_dir": "a"}
    one = write(tmp_path / "a" / "run", START | {"options": options}, steps(3, 1002.0, 2.5))
    other = START | {"options": options | {"compression": "fp16", "run_dir": "b"}}
    two = write(tmp_path / "b" / "run", other, steps(3, 1002.0, 2.4))
    found = describe_runs(read_runs([one, two]))
    assert [run["name"] for run in found["runs"]] == ["a/run", "b/run"]
    assert found["differing_options"] == {"--compression": {"a/run": "none", "b/run": "fp16"}}
    with pytest.raises(ConfigError, match="twice"):
        read_runs([one, two, one / ".." / "run"])
