"""fab data without boards."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import ClusterError
from cluster.inventory_file import Host
from cluster.tasks import data
from cluster.tasks.board import Board, BoardError
from cluster.tasks.boards import Outcome


def make_pack(folder: Path) -> Path:
    folder.mkdir()
    (folder / "train-images.bin").write_bytes(b"pictures")
    digest = hashlib.sha256(b"pictures").hexdigest()
    files = {"train-images.bin": {"bytes": 8, "sha256": digest}}
    (folder / "index.json").write_text(json.dumps({"files": files}))
    (folder / "verified.json").write_text("{}")
    return folder


class LocalBoard(Board):
    """A board whose shell and files are those of this machine."""

    def __init__(self, host: Host, work: Path) -> None:
        super().__init__(host)
        self.folder = work

    def run(self, line: str, *, hide: bool | str = True, codes: Any = (0,)) -> str:
        done = subprocess.run(
            ["sh", "-c", line], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout

    def connect(self) -> Any:
        sftp = SimpleNamespace(
            put=shutil.copyfile, posix_rename=os.replace, remove=os.unlink, close=lambda: None
        )
        return SimpleNamespace(sftp=lambda: sftp)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalBoard:
    monkeypatch.delenv("EDGEDDL_DATA", raising=False)
    (tmp_path / "on board").mkdir()
    return LocalBoard(Host("pi-01", "10.0.0.1", None, None, {}), tmp_path / "on board")


def test_only_files_that_differ_are_copied(board: LocalBoard, tmp_path: Path) -> None:
    pack = data.read_pack(make_pack(tmp_path / "my pack"))
    assert list(pack.checksums) == ["train-images.bin", "index.json"]  # the index last
    there = board.folder / "data" / "my pack"
    first = data.copy_pack(board, pack, None)
    assert (first.folder, first.files) == (str(there), 2)
    assert sorted(os.listdir(there)) == ["index.json", "train-images.bin"]
    assert data.copy_pack(board, pack, None).files == 0
    (there / "train-images.bin").write_bytes(b"altered!")
    again = data.copy_pack(board, pack, None)
    assert (again.files, again.bytes) == (1, 8)
    assert (there / "train-images.bin").read_bytes() == b"pictures"


def test_the_folder_on_the_board(
    board: LocalBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = data.read_pack(make_pack(tmp_path / "pack"))
    monkeypatch.setenv("EDGEDDL_DATA", str(tmp_path / "a b"))
    assert data.copy_pack(board, pack, None).folder == str(tmp_path / "a b" / "pack")
    assert data.copy_pack(board, pack, str(tmp_path / "c")).folder == str(tmp_path / "c" / "pack")


def test_a_file_damaged_on_its_way_is_not_used(board: LocalBoard, tmp_path: Path) -> None:
    path = make_pack(tmp_path / "pack")
    pack = data.read_pack(path)
    (path / "train-images.bin").write_bytes(b"changed.")
    with pytest.raises(BoardError, match=r"train-images\.bin was damaged"):
        data.copy_pack(board, pack, None)
    assert not list((board.folder / "data" / "pack").iterdir())


def test_a_full_board_is_reported(board: LocalBoard, tmp_path: Path) -> None:
    with pytest.raises(BoardError, match=r"not enough space in .*1000000000\.0 MB needed"):
        data._check_space(board, str(tmp_path), 10**15)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("train-images.bin", "altered!", r"train-images\.bin does not match its checksum"),
        ("train-images.bin", None, r"train-images\.bin cannot be read"),
        ("index.json", None, r"is not a pack: it has no index\.json"),
        ("index.json", "[]", r"is not an index of a pack"),
        ("index.json", '{"files": {"../x": {"sha256": ""}}}', r"'\.\./x' is not a file name"),
    ],
)
def test_a_damaged_pack_is_not_copied(
    tmp_path: Path, name: str, content: str | None, complaint: str
) -> None:
    path = make_pack(tmp_path / "pack")
    if content is None:
        (path / name).unlink()
    else:
        (path / name).write_text(content)
    with pytest.raises(ClusterError, match=complaint):
        data.read_pack(path)


def test_the_table_of_boards(board: LocalBoard) -> None:
    copied = data.Copied("/packs/a", 2, 5_000_000, 1.25)
    outcomes = [Outcome(board, value=copied), Outcome[data.Copied](board, error=BoardError("lost"))]
    rows = [line.split("  ") for line in data.render(outcomes).splitlines()[2:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells[0] == ["pi-01", "ok", "2", "5.0 MB", "1.2 s", "/packs/a"]
    assert cells[1] == ["pi-01", "lost", "-", "-", "-", "-"]
