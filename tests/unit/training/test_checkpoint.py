"""Which checkpoints a store keeps, and which one it reads."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.errors import CheckpointError, ConfigError
from edgeddl.training.checkpoint import (
    Checkpoint,
    CheckpointStore,
    find_checkpoints,
    read_checkpoint,
)


def of_step(step: int, size: int = 64) -> Checkpoint:
    return Checkpoint({"W": np.full(size, step, np.float32)}, {"step": step})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def damage(path: Path) -> None:
    """Change a byte, in a new file: the best one may be a link to the old."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.unlink()
    path.write_bytes(content)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "checkpoints", keep=2)


def test_an_empty_store_has_no_latest(store: CheckpointStore) -> None:
    assert store.latest() is None
    store.folder.mkdir(parents=True)
    assert store.latest() is None


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        CheckpointStore(tmp_path, keep=0)


def test_save_keeps_the_last_ones_and_the_best(store: CheckpointStore) -> None:
    for step in (9, 10, 11, 100, 120):
        written = store.save(step, of_step(step), best=step == 10)
    assert written == store.folder / "checkpoint-00000120.npz"
    kept = ["best.npz", "checkpoint-00000100.npz", "checkpoint-00000120.npz"]
    assert names(store.folder) == kept
    assert read_checkpoint(store.folder / "best.npz").meta == {"step": 10}
    found = store.latest()
    assert found is not None
    assert found[0] == written
    np.testing.assert_array_equal(found[1].arrays["W"], of_step(120).arrays["W"])


def test_a_better_one_replaces_the_best(store: CheckpointStore) -> None:
    for step, best in ((1, True), (2, False), (3, True), (3, True), (4, False)):
        store.save(step, of_step(step), best)
    assert read_checkpoint(store.folder / "best.npz").meta == {"step": 3}
    assert len(names(store.folder)) == 3


def test_the_best_is_a_link(store: CheckpointStore) -> None:
    written = store.save(1, of_step(1), best=True)
    assert written.samefile(store.folder / "best.npz")


def test_the_best_is_copied_where_there_are_no_links(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise PermissionError(errno.EPERM, "no hard links here, as on FAT")

    monkeypatch.setattr(os, "link", refuse)
    for step in (1, 2, 3, 4):
        store.save(step, of_step(step), best=step < 3)
    assert read_checkpoint(store.folder / "best.npz").meta == {"step": 2}
    assert len(names(store.folder)) == 3


def test_a_best_that_cannot_be_marked_keeps_both(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store.save(1, of_step(1), best=True)
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(shutil, "copyfileobj", refuse)
    with pytest.raises(CheckpointError, match=r"02\.npz is written.*best\.npz .*: No space"):
        store.save(2, of_step(2), best=True)
    assert read_checkpoint(store.folder / "best.npz").meta == {"step": 1}
    assert read_checkpoint(store.folder / "checkpoint-00000002.npz").meta == {"step": 2}
    assert len(names(store.folder)) == 3


def test_files_of_others_are_never_removed(store: CheckpointStore) -> None:
    store.folder.mkdir(parents=True)
    foreign = [
        "checkpoint-1.npz",
        "checkpoint-000000001.npz",
        "checkpoint-00000001.npz.bak",
        "copy of checkpoint-00000001.npz",
        "notes.txt",
        ".notes.txt.0123abcd.tmp",
        "weights.npz",
    ]
    for name in foreign:
        (store.folder / name).write_text("mine")
    for step in range(5):
        store.save(step, of_step(step), best=True)
    assert set(foreign) < set(names(store.folder))
    assert len(names(store.folder)) == len(foreign) + 3


def test_steps_beyond_eight_digits_stay_in_order(store: CheckpointStore) -> None:
    for step in (99_999_998, 99_999_999, 100_000_000):
        store.save(step, of_step(step))
    assert [path.name for path in find_checkpoints(store.folder)] == [
        "checkpoint-99999999.npz",
        "checkpoint-100000000.npz",
    ]


def test_damaged_ones_are_passed_over(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.save(1, of_step(1))
    damage(store.save(2, of_step(2)))
    found = store.latest()
    assert found is not None
    assert found[1].meta == {"step": 1}
    [record] = caplog.records
    assert (record.name, record.levelno) == ("edgeddl", logging.WARNING)
    assert "checkpoint-00000002.npz is damaged" in record.message


def test_one_that_vanished_is_not_called_damaged(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.folder.mkdir(parents=True)
    # Listed but not there, as when a writer removes it between the two.
    (store.folder / "checkpoint-00000009.npz").symlink_to("absent")
    assert store.latest() is None
    assert not caplog.records


def test_the_best_is_the_last_resort(store: CheckpointStore) -> None:
    for step in (1, 2, 3):
        store.save(step, of_step(step), best=step == 1)
    for path in find_checkpoints(store.folder)[1:]:
        damage(path)
    found = store.latest()
    assert found is not None
    assert found[0].name == "best.npz"


def test_all_damaged_is_an_error_that_names_them(store: CheckpointStore) -> None:
    for step in (1, 2):
        store.save(step, of_step(step))
    for path in find_checkpoints(store.folder):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"02\.npz, checkpoint-00000001\.npz") as caught:
        store.latest()
    assert "--resume never" in str(caught.value.hint)


def test_one_of_a_newer_edgeddl_is_not_passed_over(store: CheckpointStore) -> None:
    store.save(1, of_step(1))
    newer = json.dumps({"format": "edgeddl-checkpoint", "version": 2})
    with zipfile.ZipFile(store.folder / "checkpoint-00000002.npz", "w") as archive:
        archive.writestr("edgeddl.json", newer)
    with pytest.raises(CheckpointError, match="version 2"):
        store.latest()


def test_going_back_supersedes_later_ones(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (100, 200, 300):
        store.save(step, of_step(step))
    store.save(250, of_step(250))
    assert names(store.folder) == ["checkpoint-00000200.npz", "checkpoint-00000250.npz"]
    assert "checkpoint-00000300.npz" in caplog.text


def test_a_damaged_latest_is_replaced_by_the_resumed_run(store: CheckpointStore) -> None:
    store.save(1, of_step(1))
    damage(store.save(2, of_step(2)))
    store.save(2, of_step(2))
    found = store.latest()
    assert found is not None
    assert found[1].meta == {"step": 2}


def test_leftovers_of_a_killed_writer_are_ignored_and_cleaned(store: CheckpointStore) -> None:
    store.save(1, of_step(1))
    for name in (".checkpoint-00000002.npz.0123abcd.tmp", ".best.npz.0123abcd.tmp"):
        (store.folder / name).write_bytes(b"half")
    found = store.latest()
    assert found is not None
    assert found[1].meta == {"step": 1}
    store.save(2, of_step(2))
    assert names(store.folder) == ["checkpoint-00000001.npz", "checkpoint-00000002.npz"]


def test_a_folder_that_cannot_be_made_is_a_checkpoint_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="could not be written: Not a directory"):
        CheckpointStore(tmp_path / "file" / "checkpoints", keep=1).save(1, of_step(1))
