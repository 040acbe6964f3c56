"""Downloads are resumed and verified, and only complete files get their final name."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import re
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgeddl.data import fetch as fetch_module
from edgeddl.data.download import Archive
from edgeddl.data.fetch import CIFAR10_BINARY, fetch, fetch_cifar10
from edgeddl.errors import DataError
from tests.unit.data.file_server import FileServer, serving

CONTENT = np.random.default_rng(0).bytes(1_000_000)
HALF = len(CONTENT) // 2


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer(CONTENT)) as running:
        yield running


@pytest.fixture
def archive(server: FileServer) -> Archive:
    return make_archive(server.url)


def make_archive(url: str) -> Archive:
    return Archive("file.tar.gz", url, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_part(folder: Path, content: bytes) -> Path:
    part = folder / "file.tar.gz.part"
    part.write_bytes(content)
    return part


def test_description_of_cifar10() -> None:
    assert CIFAR10_BINARY.url == f"https://www.cs.toronto.edu/~kriz/{CIFAR10_BINARY.name}"
    assert CIFAR10_BINARY.size == 170_052_171
    assert re.fullmatch("[0-9a-f]{64}", CIFAR10_BINARY.sha256)


def test_download(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    path = fetch(archive, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "file.tar.gz"
    assert path.read_bytes() == CONTENT
    assert names_in(path.parent) == ["file.tar.gz"]
    assert server.asked == [None]


def test_without_announced_length(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    server.announce_length = False
    assert fetch(archive, tmp_path).read_bytes() == CONTENT


def test_a_valid_file_is_not_downloaded_again(
    tmp_path: Path, archive: Archive, server: FileServer, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / archive.name
    path.write_bytes(CONTENT)
    with caplog.at_level(logging.INFO, "edgeddl"):
        assert fetch(archive, tmp_path) == path
    assert f"{path} already exists" in caplog.text
    assert server.asked == []


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"\0", CONTENT[:HALF], b""])
def test_wrong_file_under_the_final_name_is_replaced(
    tmp_path: Path, archive: Archive, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / archive.name
    path.write_bytes(content)
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert "does not match its checksum" in caplog.text


def test_resumed(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    write_part(tmp_path, CONTENT[:HALF])
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={HALF}-"]
    assert names_in(tmp_path) == ["file.tar.gz"]


def test_complete_part_is_only_checked(
    tmp_path: Path, archive: Archive, server: FileServer
) -> None:
    write_part(tmp_path, CONTENT)
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.asked == []


def test_server_that_ignores_ranges(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    server.ranges = False
    write_part(tmp_path, b"x" * HALF)
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={HALF}-"]


def test_server_that_resumes_elsewhere(
    tmp_path: Path, archive: Archive, server: FileServer
) -> None:
    server.range_offset = 10
    write_part(tmp_path, CONTENT[:HALF])
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={HALF}-", None]


def test_range_not_satisfiable(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    """The server's file was shorter for a while; the download restarts from byte 0."""
    server.range_offset = len(CONTENT)
    write_part(tmp_path, CONTENT[:HALF])
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={HALF}-", None]


def test_part_that_is_too_long(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    write_part(tmp_path, CONTENT + b"x")
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None]


def test_dropped_connection(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    server.drop_after = HALF
    with pytest.raises(DataError) as caught:
        fetch(archive, tmp_path)
    assert f"ended after {HALF:,} of {len(CONTENT):,} bytes" in str(caught.value)
    assert "to resume the download" in str(caught.value)
    assert names_in(tmp_path) == ["file.tar.gz.part"]
    server.drop_after = None
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={HALF}-"]


def test_silent_server(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    server.stall_after = HALF
    with pytest.raises(DataError, match="timed out"):
        fetch(archive, tmp_path, timeout_seconds=0.2)
    assert (tmp_path / "file.tar.gz.part").read_bytes() == CONTENT[:HALF]


@pytest.mark.parametrize("status", [403, 404, 503])
def test_http_errors(tmp_path: Path, archive: Archive, server: FileServer, status: int) -> None:
    server.status = status
    part = write_part(tmp_path, CONTENT[:HALF])
    with pytest.raises(DataError, match=f"{archive.url}: HTTP {status} "):
        fetch(archive, tmp_path)
    assert part.read_bytes() == CONTENT[:HALF]


def test_connection_refused(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        archive = make_archive(f"http://127.0.0.1:{free.getsockname()[1]}/")
    part = write_part(tmp_path, CONTENT[:HALF])
    with pytest.raises(DataError, match="Connection refused") as caught:
        fetch(archive, tmp_path)
    assert "check the network" in str(caught.value)
    assert part.read_bytes() == CONTENT[:HALF]


def test_not_an_address(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown url type"):
        fetch(make_archive("file.tar.gz"), tmp_path)


def test_wrong_content(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    server.content = CONTENT[:-1] + b"\0"
    found = hashlib.sha256(server.content).hexdigest()
    with pytest.raises(DataError) as caught:
        fetch(archive, tmp_path)
    assert f"expected SHA-256 {archive.sha256}, found {found}" in str(caught.value)
    assert names_in(tmp_path) == []


def test_damaged_part_is_not_resumed_twice(
    tmp_path: Path, archive: Archive, server: FileServer
) -> None:
    write_part(tmp_path, b"x" * HALF)
    with pytest.raises(DataError, match="expected SHA-256"):
        fetch(archive, tmp_path)
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={HALF}-", None]


def test_other_file_of_another_size(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    """Such as the login page of a hotel network; the part already downloaded is kept."""
    server.ranges = False
    server.content = b"<html>please log in</html>"
    part = write_part(tmp_path, CONTENT[:HALF])
    with pytest.raises(DataError, match="has 26 bytes, expected 1,000,000"):
        fetch(archive, tmp_path)
    assert part.read_bytes() == CONTENT[:HALF]


def test_endless_response_is_cut(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    server.announce_length = False
    server.content = CONTENT * 3
    with pytest.raises(DataError, match="sent more than the expected 1,000,000 bytes"):
        fetch(archive, tmp_path)
    assert (tmp_path / "file.tar.gz.part").stat().st_size == 0


def test_disk_known_to_be_too_small(
    tmp_path: Path, archive: Archive, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=HALF - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    part = write_part(tmp_path, CONTENT[:HALF])
    with pytest.raises(
        DataError, match=f"needs {HALF:,} more bytes, but only {HALF - 1:,} are free"
    ):
        fetch(archive, tmp_path)
    assert server.asked == []
    assert part.read_bytes() == CONTENT[:HALF]


@pytest.fixture
def largest_file() -> Iterator[int]:
    """A limit on the size of files simulates a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, hard))
    yield HALF
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_disk_that_fills_up(tmp_path: Path, archive: Archive, largest_file: int) -> None:
    with pytest.raises(DataError, match="File too large") as caught:
        fetch(archive, tmp_path)
    assert "the part already downloaded is kept" in str(caught.value)
    assert names_in(tmp_path) == ["file.tar.gz.part"]
    assert (tmp_path / "file.tar.gz.part").read_bytes() == CONTENT[:largest_file]


def test_folder_that_is_a_file(tmp_path: Path, archive: Archive) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        fetch(archive, tmp_path / "file" / "folder")


def test_two_at_a_time(tmp_path: Path, archive: Archive, server: FileServer) -> None:
    with (tmp_path / "file.tar.gz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is downloading"):
            fetch(archive, tmp_path)
    assert fetch(archive, tmp_path).read_bytes() == CONTENT


def test_no_control_characters_without_a_terminal(
    tmp_path: Path, archive: Archive, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch(archive, tmp_path, progress=True)
    out, err = capfd.readouterr()
    assert "\r" not in out + err and "\x1b" not in out + err


def test_fetch_cifar10(
    tmp_path: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch, server: FileServer
) -> None:
    monkeypatch.setattr(fetch_module, "CIFAR10_BINARY", archive)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert fetch_cifar10(tmp_path, url=server.url) == tmp_path / archive.name
    assert fetch_cifar10(url=server.url) == tmp_path / "cache" / "edgeddl" / archive.name
