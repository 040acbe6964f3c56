"""A checkpoint comes back as it was written, or is refused."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.errors import CheckpointError
from edgeddl.training.checkpoint_file import (
    HEADER_MEMBER,
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)


def example() -> Checkpoint:
    weights = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7
    return Checkpoint({"conv/W": weights, "steps": np.array(7)}, {"step": 7, "loss": 0.1})


def assert_equal(found: Checkpoint, expected: Checkpoint) -> None:
    assert found.meta == expected.meta
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype, name
        assert found.arrays[name].shape == array.shape, name
        assert found.arrays[name].tobytes() == array.tobytes(), name


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.npz"


# What is written is what is read


def test_round_trip_of_values_types_and_shapes(path: Path) -> None:
    checkpoint = Checkpoint(
        {
            "file": np.array([0.0, -0.0, np.inf, np.nan, 1e-45], np.float32),
            "scalar": np.array(3.5),
            "empty": np.zeros((0, 3), np.float32),
            "flags": np.array([True, False]),
            "half": np.arange(5, dtype=np.float16),
            "big-endian": np.arange(5, dtype=">i4"),
            "größe/0": np.array([2**63], np.uint64),
        },
        {"step": 3, "rate": 0.1 + 0.2, "state": 2**127, "history": [{"loss": 1.5}], "best": None},
    )
    write_checkpoint(path, checkpoint)
    assert_equal(read_checkpoint(path), checkpoint)


def test_views_are_saved_by_logical_value(path: Path) -> None:
    base = np.random.default_rng(0).standard_normal((3, 3, 5, 7), dtype=np.float32)
    views = {
        "weights": base.transpose(3, 2, 0, 1),
        "fortran": np.asfortranarray(base),
        "strided": base[::2, :, ::-1, 1:],
        "broadcast": np.broadcast_to(np.float32(2), (4, 5)),
    }
    write_checkpoint(path, Checkpoint(views, {}))
    assert_equal(read_checkpoint(path), Checkpoint(views, {}))


def test_memory_order_does_not_change_the_file(tmp_path: Path) -> None:
    array = np.arange(24.0).reshape(4, 6)
    for name, view in (("c", array), ("f", np.asfortranarray(array))):
        write_checkpoint(tmp_path / name, Checkpoint({"W": view}, {"step": 1}))
    assert (tmp_path / "c").read_bytes() == (tmp_path / "f").read_bytes()


def test_numpy_opens_it_without_edgeddl(path: Path) -> None:
    write_checkpoint(path, example())
    with np.load(path, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["conv/W"], example().arrays["conv/W"])


def test_meta_is_what_json_makes_of_it(path: Path) -> None:
    write_checkpoint(
        path, Checkpoint({}, {"pair": (1, 2), "by_rank": {2: "b", 10: "a", "10": "c"}})
    )
    assert read_checkpoint(path).meta == {"pair": [1, 2], "by_rank": {"2": "b", "10": "c"}}


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint({"W": np.array([{}], dtype=object)}, {}),
        Checkpoint({"W": np.array(["text"])}, {}),
        Checkpoint({"": np.zeros(1)}, {}),
        Checkpoint({"a\0b": np.zeros(1)}, {}),
        Checkpoint({}, {"value": np.float32(1)}),
    ],
)
def test_what_cannot_be_stored_is_the_callers_error(tmp_path: Path, checkpoint: Checkpoint) -> None:
    target = tmp_path / "a.npz"
    write_checkpoint(target, example())
    # Not a CheckpointError: a caller that goes on after a full disk must not go on after this.
    with pytest.raises((TypeError, ValueError)):
        write_checkpoint(target, checkpoint)
    assert names(tmp_path) == ["a.npz"]
    assert_equal(read_checkpoint(target), example())


# Damage


def test_truncation_anywhere_is_noticed(path: Path) -> None:
    write_checkpoint(path, example())
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"a\.npz"):
            read_checkpoint(path)


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_a_changed_byte_never_changes_what_is_read(path: Path, mask: int) -> None:
    write_checkpoint(path, example())
    whole = path.read_bytes()
    data = whole.index(example().arrays["conv/W"].tobytes())
    unnoticed, complaints = set(), set()
    for offset in range(len(whole)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ mask]) + whole[offset + 1 :])
        try:
            assert_equal(read_checkpoint(path), example())
            unnoticed.add(offset)
        except CheckpointError as error:
            complaints.add("a.npz" in error.message)
    assert complaints == {True}  # each names the file
    # A zip file has bytes without meaning (dates, file attributes), but only a few, and no data.
    assert not unnoticed & set(range(data, data + 96))
    assert len(unnoticed) < len(whole) / 4


def rewrite(path: Path, change: Any, compression: int = zipfile.ZIP_STORED) -> None:
    """Pass the members of a sound checkpoint through `change`, with CRCs to match."""
    write_checkpoint(path, example())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def change_header(**values: Any) -> Any:
    def change(members: dict[str, bytes]) -> None:
        members[HEADER_MEMBER] = json.dumps(
            {**json.loads(members[HEADER_MEMBER]), **values}
        ).encode()

    return change


def npy(array: np.ndarray, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


class Exploit:
    """Something whose unpickling is noticed."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("unpickled",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop(HEADER_MEMBER), "edgeddl.json is missing"),
        (lambda m: m.pop("conv/W.npy"), "conv/W.npy"),
        (lambda m: m.update({"foreign.npy": b""}), "foreign.npy"),
        (lambda m: m.update({HEADER_MEMBER: b"{"}), "JSONDecodeError"),
        (lambda m: m.update({HEADER_MEMBER: b"[]"}), "format"),
        (lambda m: m.update({HEADER_MEMBER: b"[" * 100_000}), "RecursionError"),
        (change_header(format="other"), "format"),
        (change_header(version="1"), "version '1'"),
        (change_header(version=0), "version 0"),
        (change_header(arrays=5), "TypeError"),
        (change_header(meta=None), "description"),
        (change_header(meta={"step": 8}), "SHA-256"),
        (change_header(sha256=None), "SHA-256"),
        (lambda m: m.update({"steps.npy": npy(np.array(8))}), "SHA-256"),
        (lambda m: m.update({"steps.npy": npy(np.array(7, np.int32))}), "SHA-256"),
        (lambda m: m.update({"conv/W.npy": m["conv/W.npy"].replace(b"3, 4", b"4, 3")}), "SHA-256"),
        (
            lambda m: m.update({"conv/W.npy": m["conv/W.npy"].replace(b"3, 4", b"9**9")}),
            "ValueError",
        ),
        (lambda m: m.update({"conv/W.npy": m["conv/W.npy"][:-1]}), "ValueError"),
        (lambda m: m.update({"steps.npy": b""}), "ValueError"),
        (
            lambda m: m.update({"steps.npy": npy(np.array([Exploit()]), allow_pickle=True)}),
            "allow_pickle",
        ),
        (lambda m: m.update({"steps.npy": pickle.dumps(Exploit())}), "ValueError"),
    ],
)
def test_forged_members_are_refused(
    path: Path, change: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    rewrite(path, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(path)
    assert str(path) in caught.value.message
    assert "--resume" in str(caught.value.hint)
    assert not Path("unpickled").exists()


def test_an_array_that_claims_to_be_huge_is_refused(path: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        shape = b"(2, 3, 4), }" + b" " * 7
        assert shape in members["conv/W.npy"]
        members["conv/W.npy"] = members["conv/W.npy"].replace(shape, b"(4000000000000,), }")

    rewrite(path, change)
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path)


def test_compressed_members_are_refused(path: Path) -> None:
    rewrite(path, lambda members: None, zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="is compressed"):
        read_checkpoint(path)


def test_a_newer_version_says_so(path: Path) -> None:
    rewrite(path, change_header(version=2, arrays="of another kind"))
    with pytest.raises(CheckpointError, match="version 2, this edgeddl reads up to 1") as caught:
        read_checkpoint(path)
    assert "update edgeddl" in str(caught.value.hint)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\5\6" + b"\0" * 18, pickle.dumps(Exploit())])
def test_other_files_are_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"a\.npz"):
        read_checkpoint(path)


def test_absent_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        read_checkpoint(tmp_path / "absent.npz")
    with pytest.raises(CheckpointError, match="IsADirectoryError"):
        read_checkpoint(tmp_path)


# Writing that fails


def test_the_file_is_on_disk_before_it_has_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recording_fsync(descriptor: int) -> None:
        order.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def recording_replace(source: Path, target: Path) -> None:
        order.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "replace", recording_replace)
    write_checkpoint(path, example())
    assert order == ["file", "replace", "folder"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_late_failure_leaves_the_old_file(
    path: Path, call: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(code, os.strerror(code))

    write_checkpoint(path, example())
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(CheckpointError, match=os.strerror(code)) as caught:
            write_checkpoint(path, Checkpoint({}, {}))
    assert "earlier ones, if any, are kept" in str(caught.value.hint)
    assert names(path.parent) == ["a.npz"]
    assert_equal(read_checkpoint(path), example())


def test_an_interrupt_leaves_no_temporary(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(path, example())
    assert names(path.parent) == []
