"""What --resume continues and with which options, and what it refuses; --init-from."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.config import CHANGEABLE_OPTIONS, START_OPTIONS, TrainConfig
from edgeddl.errors import CheckpointError, ConfigError, EdgeddlError
from edgeddl.training.checkpoint import CheckpointStore, read_checkpoint, write_checkpoint
from edgeddl.training.resume import continue_run
from edgeddl.training.run_lock import using
from edgeddl.training.runner import run_training
from edgeddl.training.startup import prepare_run
from edgeddl.training.statistics import RunningStatistics
from tests.unit.training.training_runs import OPTIONS, train

NORMALISED = "tests.models:TinyNormalisedNet"


@pytest.fixture(autouse=True)
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs/ is."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "edgeddl")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that tests only look at."""
    folder = tmp_path_factory.mktemp("runs") / "r"
    train(folder, max_steps=3)
    return folder


def start(ranks: int = 1, **given: Any) -> dict[str, Any]:
    """As the command line does, with no options but these."""
    given = {"progress": "none"} | given
    config = TrainConfig(**given)
    return run_ranks(ranks, lambda c: run_training(config, c, given=given.keys()))[0].summary


def adopted(**given: Any) -> TrainConfig:
    return continue_run(TrainConfig(**given), given.keys(), SingleCommunicator())


def contents(folder: Path) -> dict[str, str]:
    """Every file with a hash of what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def let_be_older(run: str, seconds: int) -> None:
    for path in Path(run, "checkpoints").iterdir():
        written = path.stat().st_mtime - seconds
        os.utime(path, (written, written))


# Options


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_continues_with_its_options(ranks: int, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {
        "model": NORMALISED, "nesterov": True, "augment": False, "schedule": "step",
        "step_at": (0.3, 0.6), "balance": (1.0, 0.5)[:ranks],
    }  # fmt: skip
    straight = train(Path("straight"), ranks, **options)
    train(Path("runs/mine"), ranks, max_steps=3, **options)
    resumed = start(ranks, resume="runs/mine")
    assert resumed["step_losses"] == straight["step_losses"]
    told = next(text for text in caplog.messages if text.startswith("options from"))
    assert "runs/mine/options.json: --model tests.models:TinyNormalisedNet" in told
    assert "--dataset shapes --limit-train 60" in told
    assert "--no-augment" in told and "--nesterov" in told and "--step-at 0.3,0.6" in told
    assert "max-steps" not in told


def test_options_of_a_checkpoint_that_stands_alone(work_folder: Path) -> None:
    train(Path("elsewhere"), max_steps=3, model=NORMALISED)
    Path("elsewhere/checkpoints/checkpoint-00000003.npz").rename("alone.npz")
    config = adopted(resume="alone.npz")
    assert (config.model, config.limit_train, config.lr) == (NORMALISED, 60, 0.05)
    assert start(resume="alone.npz")["steps"] == 16
    assert (work_folder / "runs" / "tests.models-TinyNormalisedNet-shapes").is_dir()


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 100_000])
def test_damaged_options_are_read_from_the_checkpoint(
    content: str, caplog: pytest.LogCaptureFixture
) -> None:
    train(Path("runs/mine"), max_steps=3)
    Path("runs/mine/options.json").write_text(content)
    assert adopted(resume="runs/mine").limit_train == 60
    assert "options.json cannot be read" in caplog.text


def test_nonsense_in_the_options_is_one_error() -> None:
    train(Path("runs/mine"), max_steps=3)
    options = json.loads(Path("runs/mine/options.json").read_text())
    Path("runs/mine/options.json").write_text(json.dumps(options | {"lr": "high"}))
    with pytest.raises(ConfigError, match=r"options\.json: lr = 'high'"):
        adopted(resume="runs/mine")


def test_options_of_another_version_are_no_obstacle() -> None:
    train(Path("runs/mine"), max_steps=3)
    options = json.loads(Path("runs/mine/options.json").read_text())
    del options["cutout"]
    Path("runs/mine/options.json").write_text(json.dumps(options | {"of_later": 1}))
    assert adopted(resume="runs/mine").cutout == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", NORMALISED), ("model", "resnet9"), ("stem", "imagenet"), ("dataset", "cifar10"),
        ("limit_train", 50), ("limit_test", 20), ("augment", False), ("cutout", 4),
        ("image_size", "48"), ("fit", "pad"), ("test_fraction", 0.2),
        ("batch_size", 4), ("accumulation", 2), ("lr", 0.07), ("lr_scaling", "none"),
        ("schedule", "constant"), ("warmup_epochs", 1.0), ("momentum", 0.5), ("nesterov", True),
        ("weight_decay", 0.0), ("label_smoothing", 0.1), ("seed", 1), ("local_steps", 2),
    ],
)  # fmt: skip
def test_what_cannot_change_is_refused_and_nothing_is_touched(
    run: Path, name: str, value: Any
) -> None:
    before = contents(run)
    for resume in (run, run / "checkpoints" / "best.npz"):
        with pytest.raises(ConfigError) as caught:
            start(resume=str(resume), **{name: value})
        option = f"--{name.replace('_', '-')}"
        assert f"{option}: " in caught.value.message
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        assert f" there, {text} now" in caught.value.message
        assert "--init-from" in str(caught.value.hint)
    assert contents(run) == before


def test_every_option_is_decided_about() -> None:
    """An option that is added must be put on a list, or cannot change in a resumed run."""
    fixed = TrainConfig().to_json().keys() - {*START_OPTIONS, *CHANGEABLE_OPTIONS}
    assert fixed == {
        "model", "stem", "dataset", "limit_train", "limit_test", "augment", "cutout", "batch_size",
        "accumulation", "lr", "lr_scaling", "schedule", "warmup_epochs", "step_at", "step_factor",
        "momentum", "nesterov", "weight_decay", "label_smoothing", "seed", "local_steps",
        "init_from", "image_size", "fit", "test_fraction",
    }  # fmt: skip
    assert {*START_OPTIONS, *CHANGEABLE_OPTIONS} <= TrainConfig().to_json().keys()


def test_what_is_safe_to_change_is_changed(caplog: pytest.LogCaptureFixture) -> None:
    train(Path("runs/mine"), max_steps=3)
    summary = start(2, resume="runs/mine", epochs=3, compression="fp16", keep_checkpoints=1)
    assert summary["epochs"] == 3
    assert "option given now: --epochs 3 instead of 2" in caplog.messages
    assert "option given now: --compression fp16 instead of none" in caplog.messages
    assert json.loads(Path("runs/mine/options.json").read_text())["epochs"] == 3


def test_smaller_micro_batches_of_the_same_step_are_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What the hints about memory say: the run continues, and its steps are the same."""
    train(Path("runs/mine"), model="tests.models:TinyNet", max_steps=3)
    options = json.loads(Path("runs/mine/options.json").read_text())
    smaller = {
        "batch_size": options["batch_size"] // 2,
        "accumulation": options["accumulation"] * 2,
        "lr": options["lr"] / 2,
    }
    with pytest.raises(ConfigError, match="--batch-size: "):
        start(resume="runs/mine", **(smaller | {"lr": options["lr"]}))
    resumed = start(resume="runs/mine", **smaller)
    assert f"option given now: --lr {smaller['lr']} instead of {options['lr']}" in caplog.messages
    whole = train(Path("runs/whole"), model="tests.models:TinyNet")
    assert resumed["step_losses"] == pytest.approx(whole["step_losses"], rel=1e-4)


def test_a_checkpoint_of_another_run_in_the_folder_is_refused() -> None:
    """The options are those of the folder, the model is not."""
    train(Path("runs/mine"), max_steps=3)
    train(Path("runs/other"), max_steps=5, lr=0.07)
    foreign = Path("runs/mine/checkpoints/checkpoint-00000005.npz")
    Path("runs/other/checkpoints/checkpoint-00000005.npz").rename(foreign)
    before = contents(Path("runs/mine"))
    with pytest.raises(ConfigError, match=r"checkpoint-00000005\.npz:\n  --lr: 0\.07 there"):
        start(resume="runs/mine")
    assert contents(Path("runs/mine")) == before


def test_other_images_of_the_same_data_set_are_refused() -> None:
    """Accuracies of the run so far would not be those of these images."""
    train(Path("runs/mine"))
    path = Path("runs/mine/checkpoints/checkpoint-00000016.npz")
    checkpoint = read_checkpoint(path)
    checkpoint.meta["data"] = "0123456789abcdef"
    write_checkpoint(path, checkpoint)
    with pytest.raises(CheckpointError, match="other images of shapes"):
        start(resume="runs/mine")
    del checkpoint.meta["data"]  # written by an older version
    write_checkpoint(path, checkpoint)
    assert start(resume="runs/mine")["steps"] == 16


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again() -> None:
    straight = train(Path("straight"))
    Path("runs/mine").mkdir(parents=True)
    options = TrainConfig(**OPTIONS).to_json()
    Path("runs/mine/options.json").write_text(json.dumps(options))
    assert start(resume="runs/mine")["step_losses"] == straight["step_losses"]


# auto


def test_auto_takes_the_newest_unfinished_run(caplog: pytest.LogCaptureFixture) -> None:
    train(Path("runs/oldest"), max_steps=3)
    train(Path("runs/newer"), max_steps=3, model=NORMALISED)
    train(Path("runs/finished"))
    let_be_older("runs/oldest", 200)
    let_be_older("runs/newer", 100)
    assert adopted(resume="auto").model == NORMALISED
    assert "--resume auto: the newest unfinished run is runs/newer" in caplog.messages
    assert adopted(resume="auto", model=OPTIONS["model"]).resume == "runs/oldest"
    assert adopted(resume="auto", epochs=5).resume == "runs/finished"  # it has had 2 of them
    let_be_older("runs/newer", 200)
    assert adopted(resume="auto").resume == "runs/oldest"


def test_auto_repeats_no_finished_run(caplog: pytest.LogCaptureFixture) -> None:
    finished = train(Path("runs/mine"))
    again = start(resume="auto", model=OPTIONS["model"])
    assert again["step_losses"] == finished["step_losses"]
    assert again["final_accuracy"] == finished["final_accuracy"]
    assert "already complete" in caplog.text
    assert [path.name for path in Path("runs").iterdir()] == ["mine"]


def test_auto_without_a_run(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="no run to continue in runs") as caught:
        start(resume="auto", epochs=3)
    assert "--model" in str(caught.value.hint)
    assert not Path("runs").exists()
    given = {k: v for k, v in OPTIONS.items() if k != "progress"} | {"max_steps": 2}
    assert start(resume="auto", **given)["steps"] == 2
    assert "no run to continue in runs, starting a new one" in caplog.text
    assert start(resume="auto", **given | {"max_steps": 4})["steps"] == 4
    assert len(list(Path("runs").iterdir())) == 1


def test_auto_in_a_run_folder(work_folder: Path) -> None:
    train(Path("runs/other"), max_steps=3)
    options: dict[str, Any] = {**OPTIONS, "run_dir": Path("mine"), "resume": "auto"}
    start(**options, max_steps=2)
    assert start(resume="auto", run_dir=Path("mine"), max_steps=5)["steps"] == 5
    with pytest.raises(ConfigError, match="no run to continue in nothing"):
        start(resume="auto", run_dir=Path("nothing"))


def test_only_rank_0_needs_the_run(work_folder: Path) -> None:
    """Hosts do not share disks: what other ranks say of --resume is not looked at."""
    train(Path("runs/mine"), 2, max_steps=2, model=NORMALISED)

    def resume(communicator: Communicator) -> str:
        given = {"resume": "auto" if communicator.rank == 0 else "nowhere"}
        return continue_run(TrainConfig(**given), given.keys(), communicator).model

    assert run_ranks(2, resume) == [NORMALISED] * 2


def test_a_run_in_progress_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    train(Path("runs/idle"), max_steps=3)
    train(Path("runs/busy"), max_steps=3)
    let_be_older("runs/idle", 100)
    with using(Path("runs/busy")):
        assert adopted(resume="auto").resume == "runs/idle"
        assert "ignoring runs/busy, which another job is training" in caplog.text
        with pytest.raises(ConfigError, match="another job is training in"):
            start(resume="runs/busy")
    assert adopted(resume="auto").resume == "runs/busy"


# --init-from


def initialised(ranks: int, **options: Any) -> list[tuple[bytes, bytes, int]]:
    def work(communicator: Communicator) -> tuple[bytes, bytes, int]:
        config = TrainConfig(**OPTIONS | {"model": NORMALISED, "seed": 5} | options)
        run = prepare_run(config, communicator)
        assert not run.optimizer.velocity.any()
        views = {name: run.arena.view(run.arena.parameters, name) for name in run.arena.names}
        values = b"".join(np.ascontiguousarray(views[name]).tobytes() for name in sorted(views))
        return values, RunningStatistics(run.model).flat().tobytes(), run.state.step

    return run_ranks(ranks, work)


def saved(path: str, prefix: str) -> bytes:
    arrays = read_checkpoint(Path(path)).arrays
    names = sorted(name for name in arrays if name.startswith(f"{prefix}/"))
    if prefix == "parameters":  # without the running statistics that stand there for Chainer
        names = [name for name in names if name.replace(prefix, "velocity", 1) in arrays]
    return b"".join(arrays[name].tobytes() for name in names)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    ("source", "used"),
    [
        ("runs/mine", "best.npz"),
        ("runs/mine/checkpoints/best.npz", "best.npz"),
        ("runs/mine/checkpoints/checkpoint-00000006.npz", "checkpoint-00000006.npz"),
    ],
)
def test_a_new_run_starts_from_the_parameters(ranks: int, source: str, used: str) -> None:
    train(Path("runs/mine"), 3, model=NORMALISED, checkpoint_every=1, keep_checkpoints=9)
    before = contents(Path("runs/mine"))
    found = initialised(ranks, init_from=Path(source), run_dir=Path("new"))
    parameters = saved(f"runs/mine/checkpoints/{used}", "parameters")
    statistics = saved(f"runs/mine/checkpoints/{used}", "statistics")
    assert [(one[0], len(one[1]), one[2]) for one in found] == [
        (parameters, len(statistics), 0)
    ] * ranks
    assert len({one[1] for one in found}) == 1
    assert contents(Path("runs/mine")) == before


def test_statistics_come_along() -> None:
    train(Path("runs/mine"), model=NORMALISED)
    [(_, fresh, _)] = initialised(1, run_dir=Path("fresh"))
    [(_, found, _)] = initialised(1, run_dir=Path("new"), init_from=Path("runs/mine"))
    arrays = read_checkpoint(Path("runs/mine/checkpoints/best.npz")).arrays
    values = np.concatenate([a.ravel() for n, a in arrays.items() if n.startswith("statistics/")])
    assert sorted(np.frombuffer(found, np.float32)) == sorted(values)
    assert fresh != found


def test_init_from_what_does_not_fit_is_one_error() -> None:
    train(Path("runs/mine"))
    for source in ("runs/mine", "runs/mine/checkpoints/best.npz"):
        with pytest.raises(CheckpointError, match=r"--init-from .*best\.npz does not fit"):
            initialised(1, init_from=Path(source), run_dir=Path("new"))
    with pytest.raises(CheckpointError, match="--init-from nowhere: there is no such"):
        initialised(1, init_from=Path("nowhere"), run_dir=Path("new"))
    assert not Path("new").exists()


def test_a_run_from_other_parameters_is_resumed_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    train(Path("runs/source"))
    options: dict[str, Any] = {**OPTIONS, "lr": 0.01, "init_from": Path("runs/source")}
    straight = start(**options, run_dir=Path("straight"))
    first = {**options, "run_dir": Path("mine"), "resume": "auto", "max_steps": 3}
    start(**first)
    again = start(**first | {"max_steps": 16})
    assert again["step_losses"] == straight["step_losses"]
    assert caplog.text.count("starting from the parameters of") == 2
    with pytest.raises(ConfigError, match="--init-from starts a new one"):
        start(resume="mine", init_from=Path("runs/source"))


# What is printed


def test_an_accuracy_is_only_shown_for_the_images_it_was_measured_on() -> None:
    """A run over other test images is a new run, and measures its own."""
    train(Path("runs/mine"))
    with pytest.raises(ConfigError, match="--limit-test: 30 there, 20 now"):
        start(resume="runs/mine/checkpoints/best.npz", limit_test=20, run_dir=Path("tuned"))
    options = OPTIONS | {"limit_test": 7, "epochs": 1, "init_from": Path("runs/mine")}
    tuned = start(**options, run_dir=Path("tuned"))
    right = tuned["final_accuracy"] * 7
    assert right == pytest.approx(round(right))
    assert tuned["steps"] == 8


def test_a_latest_checkpoint_that_cannot_be_read_is_passed_over() -> None:
    train(Path("runs/mine"), max_steps=5, checkpoint_every=1)
    latest = Path("runs/mine/checkpoints/checkpoint-00000005.npz")
    latest.write_bytes(latest.read_bytes()[:1000])
    Path("runs/mine/options.json").unlink()
    assert start(resume="auto", max_steps=6)["steps"] == 6
    store = CheckpointStore(Path("runs/mine/checkpoints"), keep=3)
    for path in store.folder.iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(EdgeddlError, match="can be read"):
        start(resume="runs/mine")
