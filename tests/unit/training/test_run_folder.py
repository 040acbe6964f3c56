"""Which folder a run gets: a new one, one to go on in, or a refusal; never one to overwrite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeddl.errors import CheckpointError, ConfigError
from edgeddl.training.checkpoint import Checkpoint, CheckpointStore
from edgeddl.training.run_folder import (
    RunFolder,
    check_not_of_a_run,
    choose_run_folder,
    list_runs,
    run_name,
)

NAME = "resnet18-cifar10"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def choose(base: Path, resume: str | Path, explicit: Path | None = None) -> RunFolder:
    return choose_run_folder(base, NAME, explicit, str(resume))


def a_run(path: Path, *steps: int) -> Path:
    """A run folder with checkpoints of these steps; returns that of the last."""
    store = CheckpointStore(path / "checkpoints", keep=9)
    return [store.save(step, Checkpoint({"W": np.zeros(1)}, {})) for step in steps][-1]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("resnet18", "resnet18-cifar10"),
        ("my_models.nets:build_net", "my_models.nets-build_net-cifar10"),
        ("../../etc:x", "etc-x-cifar10"),
        ("größe:netz", "gr-e-netz-cifar10"),
    ],
)
def test_names_are_plain_folder_names(model: str, expected: str) -> None:
    assert run_name(model, "cifar10") == expected


def test_a_long_name_stays_a_file_name() -> None:
    assert len(run_name("m" * 1000, "cifar10")) == 100


def test_files_of_a_run(base: Path) -> None:
    folder = choose(base, "never")
    assert folder.path == base / NAME
    assert folder.checkpoints == base / NAME / "checkpoints"
    assert folder.checkpoints.is_dir()
    assert folder.summary == base / NAME / "summary.json"
    assert folder.options == base / NAME / "options.json"
    assert folder.resume_from is None
    assert [path.name for path in folder.path.rglob("*")] == ["checkpoints"]


def test_never_takes_the_next_number(base: Path) -> None:
    found = [choose(base, "never").path.name for _ in range(11)]
    assert found == [NAME] + [f"{NAME}-{number}" for number in range(2, 12)]


def test_never_goes_beyond_gaps_and_other_names(base: Path) -> None:
    for name in (f"{NAME}-3", f"{NAME}-1", f"{NAME}-007", f"{NAME}-9-old", f"x-{NAME}-8"):
        (base / name).mkdir(parents=True)
    assert choose(base, "never").path == base / f"{NAME}-4"


def test_a_file_under_the_name_is_not_overwritten(base: Path) -> None:
    base.mkdir()
    (base / NAME).write_text("mine")
    assert choose(base, "never").path == base / f"{NAME}-2"
    assert (base / NAME).read_text() == "mine"


def test_runs_are_folders_with_checkpoints(base: Path) -> None:
    assert list_runs(base) == []
    for name in ("one", "two"):
        a_run(base / name, 1)
    last = a_run(base / "only-its-best", 1)
    last.rename(last.with_name("best.npz"))
    (base / "empty" / "checkpoints").mkdir(parents=True)
    (base / "notes.txt").write_text("mine")
    assert {run.path.name for run in list_runs(base)} == {"one", "two", "only-its-best"}


def test_explicit_and_never_refuse_a_used_folder(base: Path, tmp_path: Path) -> None:
    explicit = tmp_path / "mine"
    assert choose(base, "never", explicit).path == explicit
    assert choose(base, "never", explicit).path == explicit
    a_run(explicit, 1)
    with pytest.raises(ConfigError, match="already holds another run") as caught:
        choose(base, "never", explicit)
    assert f"--resume {explicit}" in str(caught.value.hint)
    assert "--run-dir" in str(caught.value.hint)
    assert not base.exists()


def test_a_run_without_checkpoints_yet_is_not_overwritten(base: Path, tmp_path: Path) -> None:
    """It was killed before its first one: its options are there, and its events."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "options.json").write_text("{}")
    with pytest.raises(ConfigError, match="already holds another run"):
        choose(base, "never", tmp_path / "mine")
    assert choose(base, tmp_path / "mine").path == tmp_path / "mine"


def test_a_checkpoint_goes_on_in_its_run(base: Path) -> None:
    a_run(base / NAME, 1)
    a_run(base / f"{NAME}-2", 1)
    checkpoint = a_run(base / NAME, 2)
    assert choose(base, checkpoint) == RunFolder(base / NAME, checkpoint)


def test_a_relative_checkpoint_goes_on_in_its_run(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = a_run(base / NAME, 1)
    monkeypatch.chdir(checkpoint.parent)
    assert choose(base, checkpoint.name) == RunFolder(base / NAME, Path(checkpoint.name))
    assert choose(base, ".") == RunFolder(base / NAME)


def test_a_loose_checkpoint_begins_a_new_folder(base: Path, tmp_path: Path) -> None:
    loose = a_run(base / NAME, 1).rename(tmp_path / "copy.npz")
    assert choose(base, loose) == RunFolder(base / f"{NAME}-2", loose)


def test_a_run_folder_goes_on_from_its_latest(base: Path) -> None:
    a_run(base / NAME, 1, 2)
    assert choose(base, base / NAME) == RunFolder(base / NAME)
    assert choose(base, base / NAME / "checkpoints") == RunFolder(base / NAME)


def test_a_checkpoint_can_go_on_elsewhere(base: Path, tmp_path: Path) -> None:
    checkpoint = a_run(base / NAME, 1)
    assert choose(base, checkpoint, tmp_path / "mine") == RunFolder(tmp_path / "mine", checkpoint)


def test_a_run_folder_can_go_on_elsewhere_from_its_latest_readable(
    base: Path, tmp_path: Path
) -> None:
    readable = a_run(base / NAME, 1)
    a_run(base / NAME, 2).write_bytes(b"damaged")
    assert choose(base, base / NAME, tmp_path / "mine") == RunFolder(tmp_path / "mine", readable)


def test_going_on_elsewhere_does_not_mix_two_runs(base: Path, tmp_path: Path) -> None:
    checkpoint = a_run(base / NAME, 1)
    a_run(tmp_path / "mine", 5)
    with pytest.raises(ConfigError, match="already holds another run"):
        choose(base, checkpoint, tmp_path / "mine")


def test_the_explicit_folder_may_be_the_runs_own(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = a_run(base / NAME, 1)
    monkeypatch.chdir(base)
    assert choose(base, checkpoint, Path(NAME)) == RunFolder(base / NAME, checkpoint)
    assert choose(base, base / NAME, Path(NAME)) == RunFolder(base / NAME)


@pytest.mark.parametrize("resume", ["absent.npz", "runs", f"runs/{NAME}/notes"])
def test_nothing_to_resume_from(base: Path, resume: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(base / NAME, 1)
    (base / NAME / "notes").mkdir()
    monkeypatch.chdir(base.parent)
    with pytest.raises(CheckpointError, match=f"--resume .*{resume}: there") as caught:
        choose(base, resume)
    assert "give a checkpoint file or a run folder" in str(caught.value.hint)


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent" / "folder")
    # Nobody may make folders in /proc/self, root included.
    for place in (tmp_path / "file", tmp_path / "dangling", Path("/proc/self")):
        with pytest.raises(ConfigError, match="cannot be written to") as caught:
            choose(tmp_path, "never", explicit=place)
        assert "--run-dir" in str(caught.value.hint)
        with pytest.raises(ConfigError, match="cannot be written to"):
            choose(base=place, resume="never")


@pytest.mark.parametrize("record", ["summary.json", "events.jsonl"])
def test_a_folder_with_any_file_of_a_run_is_not_used_for_another(
    tmp_path: Path, record: str
) -> None:
    (tmp_path / record).write_text("of an earlier run")
    with pytest.raises(ConfigError, match="already holds another run"):
        choose_run_folder(tmp_path / "runs", NAME, tmp_path, "never")
    assert (tmp_path / record).read_text() == "of an earlier run"


def test_an_output_file_does_not_replace_a_file_of_a_run(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    summary.write_text("{}")
    check_not_of_a_run("--summary", summary)  # in an ordinary folder
    (tmp_path / "options.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"--summary .* belongs to the run in"):
        check_not_of_a_run("--summary", summary)
    check_not_of_a_run("--summary", tmp_path / "new.json")
