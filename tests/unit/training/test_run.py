"""What a whole run does and leaves behind."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.comm.bucket import Use
from edgeddl.comm.local import SingleCommunicator
from edgeddl.config import TrainConfig
from edgeddl.errors import (
    CheckpointError,
    ConfigError,
    DivergenceError,
    EdgeddlError,
)
from edgeddl.report.results import results
from edgeddl.report.run import read_run
from edgeddl.run_format import PHASES
from edgeddl.training.checkpoint import CheckpointStore, read_checkpoint
from edgeddl.training.clock import Stopwatch
from edgeddl.training.divergence import check_evaluation, check_losses
from edgeddl.training.parameters import observe_parameters
from edgeddl.training.runner import run_training
from edgeddl.training.updater import StepResult, Updater
from tests.models import TwiceUsedNet
from tests.unit.training.test_equivalence import latest_arrays
from tests.unit.training.training_runs import OPTIONS, train

NORMALISED = "tests.models:TinyNormalisedNet"


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_any_number_of_ranks_sees_every_image_once_an_epoch(tmp_path: Path, ranks: int) -> None:
    summary = train(tmp_path, ranks, limit_train=43, limit_test=17, epochs=2, batch_size=7)
    assert summary["images"] == 2 * 43
    assert summary["steps"] == 2 * -(-43 // (7 * ranks))
    assert summary["final_accuracy"] * 17 == pytest.approx(round(summary["final_accuracy"] * 17))


def test_fewer_images_than_ranks(tmp_path: Path) -> None:
    """Ranks without images contribute nothing, and nobody hangs."""
    summary = train(tmp_path, 5, limit_train=3, limit_test=2, epochs=2, model=NORMALISED)
    assert summary["steps"] == 2
    assert all(np.isfinite(summary["step_losses"]))


def test_summary_holds_what_is_promised(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "summary.json"
    train(tmp_path / "run", 2, summary=target)
    summary = json.loads(target.read_text())
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["options"]["batch_size"] == 8
    assert {"edgeddl", "python", "numpy", "chainer", "mpi4py"} <= summary["versions"].keys()
    assert summary["steps"] == len(summary["step_losses"]) == 8
    assert 0 < summary["scaling_efficiency"] <= 1
    assert [entry["epoch"] for entry in summary["history"]] == [1, 2]
    assert summary["final_accuracy"] == summary["history"][-1]["accuracy"]
    for number, rank in enumerate(summary["ranks"]):
        assert rank["rank"] == number
        assert rank["host"] == f"thread-{number}"
        assert rank["cpu"]
        assert rank["batch_share"] == 8
        assert set(rank["phase_seconds"]) == set(PHASES)
        assert rank["images_per_second"] > 0
        assert rank["peak_memory_bytes"] > 2**20
        assert rank["bytes_sent"] > 0
    measured = sum(rank["images_per_second"] for rank in summary["ranks"])
    assert measured == pytest.approx(summary["images_per_second"], rel=0.2)


@pytest.mark.parametrize(("steps", "measured"), [(1, 1), (2, 1), (3, 1), (4, 2), (10, 8)])
def test_the_first_two_steps_are_not_measured(steps: int, measured: int) -> None:
    stopwatch = Stopwatch()
    for number in range(1, steps + 1):
        stopwatch.add(number, dict.fromkeys(PHASES, number / 10), images=number)
    assert stopwatch.steps == measured
    assert stopwatch.seconds == sum(range(steps - measured + 1, steps + 1))


def test_writing_checkpoints_is_not_communication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rank begins a step, in which it would wait for rank 0, while rank 0 writes."""
    events: list[str] = []
    save, step = CheckpointStore.save, Updater.step

    def slow_save(self: CheckpointStore, *arguments: Any, **options: Any) -> Path:
        events.append("begin to write")
        time.sleep(0.3)
        path = save(self, *arguments, **options)
        events.append("written")
        return path

    def recorded_step(self: Updater, *arguments: Any) -> StepResult:
        events.append("step")
        return step(self, *arguments)

    monkeypatch.setattr(CheckpointStore, "save", slow_save)
    monkeypatch.setattr(Updater, "step", recorded_step)
    train(tmp_path, 3, max_steps=4, checkpoint_every=1)
    begun = [index for index, event in enumerate(events) if event == "begin to write"]
    assert len(begun) == 4
    assert all(events[index + 1] == "written" for index in begun)


def test_summary_that_cannot_be_written_is_found_out_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--summary"):
        train(tmp_path / "run", summary=tmp_path)
    assert not (tmp_path / "run").exists()


def test_cutout_larger_than_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--cutout 40 is larger than an image"):
        train(tmp_path / "run", cutout=40)
    assert not (tmp_path / "run").exists()


def test_evaluation_counts_every_test_image_once(tmp_path: Path) -> None:
    one, many = (train(tmp_path / str(n), n, batch_size=24 // n, lr_scaling="none") for n in (1, 3))
    assert many["history"][0]["accuracy"] == one["history"][0]["accuracy"]
    assert many["history"][0]["test_loss"] == pytest.approx(
        one["history"][0]["test_loss"], rel=1e-5
    )


def test_evaluation_at_intervals_and_at_the_end(tmp_path: Path) -> None:
    summary = train(tmp_path, epochs=3, eval_every=2)
    assert ["accuracy" in entry for entry in summary["history"]] == [False, True, True]


def test_schedule_reaches_the_optimizer(tmp_path: Path) -> None:
    """With a rate of practically nothing after the first half, the loss stands still."""
    summary = train(
        tmp_path, limit_train=8, epochs=8, augment=False, schedule="step", step_at=(0.5,),
        step_factor=1e-12, momentum=0.0, weight_decay=0.0,
    )  # fmt: skip
    losses = summary["step_losses"]
    assert losses[5] == pytest.approx(losses[7], rel=1e-6)
    assert losses[0] > losses[3] > losses[5]


def test_learns(tmp_path: Path) -> None:
    summary = train(tmp_path, 2, limit_train=40, epochs=25, augment=False, lr=0.1, weight_decay=0.0)
    assert summary["step_losses"][-1] < 0.75 * summary["step_losses"][0]


def test_weight_decay_leaves_biases_alone(tmp_path: Path) -> None:
    from edgeddl.comm.arena import Arena
    from edgeddl.comm.bucket import ParameterSpec, plan_buckets
    from edgeddl.training.parameters import plan_segments

    specs = [ParameterSpec("b", (3,), (0,)), ParameterSpec("W", (4, 5), (0, 1))]
    segments = plan_segments(Arena(plan_buckets(specs, 2**20)), 0.1)
    assert [segment.weight_decay for segment in segments] == [0.0, 0.1]


@pytest.mark.parametrize("name", ["StockNet", "make_sequential"])
def test_model_of_stock_links(tmp_path: Path, name: str) -> None:
    naive, bucketed = (
        train(tmp_path / kind, 2, model=f"tests.models:{name}", communicator=kind)
        for kind in ("naive", "bucketed")
    )
    assert naive["step_losses"] == bucketed["step_losses"]


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("name", ["TwiceUsedNet", "PenalisedNet"])
def test_parameters_used_twice_are_trained(tmp_path: Path, name: str, accumulation: int) -> None:
    options = {"model": f"tests.models:{name}", "accumulation": accumulation, "bucket_mib": 0.001}
    naive, bucketed = (
        train(tmp_path / kind, 2, communicator=kind, **options) for kind in ("naive", "bucketed")
    )
    assert naive["step_losses"] == bucketed["step_losses"]
    one, other = latest_arrays(tmp_path / "naive"), latest_arrays(tmp_path / "bucketed")
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_gradients_that_are_complete_only_at_the_end_hold_up_no_others() -> None:
    specs = observe_parameters(TwiceUsedNet(), (3, 32, 32), 10)
    assert [spec.name for spec in specs[:2]] == ["first/W", "first/b"]
    assert {spec.use for spec in specs[:2]} == {Use.ONCE}
    assert {spec.use for spec in specs[2:]} == {Use.SHARED}


def test_divergence_ends_the_run_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(EdgeddlError, match="diverged") as caught:
        train(tmp_path, lr=1e30, epochs=5)
    assert "--lr" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({}, "on the test images"),
        ({"eval_every": 9}, "for 10 steps"),
        ({"max_steps": 6}, "on the test images"),
    ],
)
def test_divergence_is_found_while_numbers_are_finite(
    tmp_path: Path, options: dict[str, Any], where: str
) -> None:
    """The loss is about 1e28, and never infinite."""
    with pytest.raises(DivergenceError, match=where):
        train(tmp_path, 2, model=NORMALISED, lr=1e3, lr_scaling="none", batch_size=4, **options)
    assert not (tmp_path / "summary.json").exists()


# ResNet-18 on `shapes` with 40 times the default learning rate: it recovers.
SPIKE = [2.35, 14.8, 36.4, 44.2, 6.5, 12.5, 8.78, 4.11, 4.63, 3.4, 2.96, 2.81, 2.48, 2.55, 2.45]


@pytest.mark.parametrize(
    "losses",
    [
        SPIKE,
        [2.3] * 3 + [1e6] * 9 + [2.3],  # nine steps may be a spike
        [900.0] + [5000.0] * 30,  # a model that starts so, and has not left it yet
        [2.3] * 20 + [45.0] * 20,
    ],
)
def test_healthy_losses_are_no_divergence(losses: list[float]) -> None:
    for count in range(1, len(losses) + 1):
        check_losses(losses[:count], classes=10)
    check_evaluation(2_254_201.75, [*losses[:-1], 2.3], classes=10)  # statistics lag behind
    check_evaluation(2.3, losses, classes=10)


def test_ten_losses_far_above_guessing_are_divergence() -> None:
    check_losses([2.3] + [47.0] * 9, classes=10)
    with pytest.raises(DivergenceError, match="for 10 steps"):
        check_losses([2.3] + [47.0] * 10, classes=10)
    with pytest.raises(DivergenceError, match="on the test images"):
        check_evaluation(47.0, [2.3, 47.0], classes=10)


def test_the_evaluation_at_an_early_end_counts(tmp_path: Path) -> None:
    """One definition of the best model: in the state, the summary, best.npz and the report."""
    ended = train(tmp_path, max_steps=3)
    assert ended["best_accuracy"] == ended["final_accuracy"] is not None
    best = read_checkpoint(tmp_path / "checkpoints" / "best.npz").meta["state"]
    assert (best["step"], best["end_evaluation"]["accuracy"]) == (3, ended["best_accuracy"])
    assert read_run(tmp_path).evaluations == [{"step": 3, "accuracy": ended["final_accuracy"]}]
    for steps in (7, 8, 12, 16):
        ended = train(tmp_path, max_steps=steps, eval_every=2, resume="auto")
        run = read_run(tmp_path)
        assert ended["best_accuracy"] == max(one["accuracy"] for one in run.evaluations)
        assert ended["best_accuracy"] == results(run)["best_accuracy"] >= ended["final_accuracy"]
        assert run.evaluations[-1]["step"] == steps
    assert ["accuracy" in entry for entry in ended["history"]] == [False, True]


def test_the_best_model_is_the_one_of_the_best_accuracy(tmp_path: Path) -> None:
    """Wherever the run was ended, and the same at last as if it never had been."""
    options = {"limit_test": 300, "epochs": 3, "lr": 0.2}
    straight = train(tmp_path / "straight", **options)
    ended_better = 0
    for steps in range(1, 25):
        ended = train(tmp_path / "run", **options, max_steps=steps, resume="auto")
        best = read_checkpoint(tmp_path / "run" / "checkpoints" / "best.npz").meta["state"]
        end = best["end_evaluation"] or {"accuracy": best["history"][-1]["accuracy"]}
        assert end["accuracy"] == ended["best_accuracy"], steps
        ended_better += best["end_evaluation"] is not None and steps > 8
    assert ended_better, "no early end was better than all epochs: this test shows nothing"
    assert ended["best_accuracy"] == straight["best_accuracy"]
    one, other = (tmp_path / name / "checkpoints" / "best.npz" for name in ("run", "straight"))
    assert read_checkpoint(one).meta["state"] == read_checkpoint(other).meta["state"]
    names = sorted(path.name for path in one.parent.iterdir())
    assert names == ["best.npz"] + [f"checkpoint-{step:08d}.npz" for step in (22, 23, 24)]


def test_checkpoints_kept(tmp_path: Path) -> None:
    train(tmp_path, checkpoint_every=2, keep_checkpoints=2, epochs=2)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["best.npz", "checkpoint-00000014.npz", "checkpoint-00000016.npz"]


def test_damaged_latest_checkpoint_falls_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    straight = train(tmp_path / "straight", epochs=2)
    train(tmp_path / "run", checkpoint_every=3, max_steps=7)
    latest = tmp_path / "run" / "checkpoints" / "checkpoint-00000007.npz"
    latest.write_bytes(latest.read_bytes()[:1000])
    with caplog.at_level(logging.WARNING, "edgeddl"):
        resumed = train(tmp_path / "run", resume="auto")
    assert "checkpoint-00000007.npz" in caplog.text
    assert resumed["step_losses"] == straight["step_losses"]


def test_full_disk_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real full disk is in test_checkpoint; here, what the run makes of it."""

    def full(*arguments: object, **options: object) -> None:
        raise CheckpointError("checkpoint could not be written: No space left on device")

    monkeypatch.setattr(CheckpointStore, "save", full)
    config = TrainConfig(**OPTIONS | {"run_dir": tmp_path})
    with caplog.at_level(logging.WARNING, "edgeddl"):
        outcome = run_training(config, SingleCommunicator())
    assert outcome.summary["steps"] == 16
    assert "No space left" in caplog.text
    assert "up to step 16 is NOT saved" in caplog.text
    assert outcome.exit_code == 2


def test_used_run_folder_is_refused(tmp_path: Path) -> None:
    train(tmp_path, max_steps=1)
    with pytest.raises(EdgeddlError, match="already holds"):
        train(tmp_path)


def test_resuming_a_finished_run_does_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = train(tmp_path)
    written = (tmp_path / "summary.json").read_bytes()
    events = (tmp_path / "events.jsonl").read_bytes()
    capsys.readouterr()
    again = train(tmp_path, 2, resume="auto", progress="lines")
    assert again == json.loads(written) and again["step_losses"] == finished["step_losses"]
    assert (tmp_path / "summary.json").read_bytes() == written
    assert (tmp_path / "events.jsonl").read_bytes() == events  # which reports are made from
    assert f"{finished['images_per_second']:.1f} img/s on 1 rank" in capsys.readouterr().out


def test_options_are_checked() -> None:
    for wrong in ({"label_smoothing": 1.0}, {"momentum": 1.0}, {"momentum": 0.0, "nesterov": True}):
        with pytest.raises(ConfigError):
            train(Path("never"), **wrong)
