"""A file that grows by whole lines."""

from __future__ import annotations

from pathlib import Path

from edgeddl.line_file import LineFile


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "lines"
    for words in (["one", "two"], ["three"]):
        file = LineFile(path, _must_not_happen)
        for word in words:
            file.append(word)
        file.close()
    assert path.read_text() == "one\ntwo\nthree\n"


def test_a_torn_line_is_terminated(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text('{"event": "ste')
    file = LineFile(path, _must_not_happen)
    file.append("whole")
    file.append("next")
    assert path.read_text() == '{"event": "ste\nwhole\nnext\n'


def test_a_full_disk_is_reported_once(tmp_path: Path) -> None:
    complaints: list[OSError] = []
    path = tmp_path / "lines"
    path.symlink_to("/dev/full")
    file = LineFile(path, complaints.append)
    for _ in range(3):
        file.append("lost")
    assert [error.strerror for error in complaints] == ["No space left on device"]


def test_a_disk_that_has_room_again_is_written_to(tmp_path: Path) -> None:
    complaints: list[OSError] = []
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    file = LineFile(folder / "lines", complaints.append)
    file.append("lost")
    folder.unlink()
    file.append("kept")
    assert len(complaints) == 1
    assert (folder / "lines").read_text() == "kept\n"


def _must_not_happen(error: OSError) -> None:
    raise AssertionError(error)
