"""CIFAR-100 from an archive of the official form."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.data import load_dataset
from edgeddl.data.cifar100 import ARCHIVE, load_cifar100
from edgeddl.data.download import Archive
from edgeddl.errors import DataError

DRAW = np.random.default_rng(0)
CONTENTS: dict[str, Any] = {
    name: {
        b"filenames": [b"a.png"] * count,
        b"fine_labels": DRAW.integers(0, 5, count).tolist(),
        b"coarse_labels": [0] * count,
        b"data": DRAW.integers(0, 256, (count, 3072), np.uint8),
    }
    for name, count in (("train", 9), ("test", 4))
}
CONTENTS["meta"] = {b"fine_label_names": [b"apple", b"bee", b"cup", b"fox", b"sea"]}


def write_archive(folder: Path, contents: dict[str, Any] = CONTENTS) -> Archive:
    path = folder / ARCHIVE.name
    with tarfile.open(path, "w:gz") as archive:
        for name, value in contents.items():
            payload = pickle.dumps(value, protocol=2)
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(payload)
            archive.addfile(member, io.BytesIO(payload))
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    return replace(ARCHIVE, size=path.stat().st_size, md5=md5)


def test_contents(tmp_path: Path) -> None:
    train, test, classes = load_cifar100(tmp_path, write_archive(tmp_path))
    assert classes == ("apple", "bee", "cup", "fox", "sea")
    for part, name in ((train, "train"), (test, "test")):
        assert part.labels.tolist() == CONTENTS[name][b"fine_labels"]
        planes = part.images.transpose(0, 3, 1, 2).reshape(len(part), -1)
        np.testing.assert_array_equal(planes, CONTENTS[name][b"data"])


def test_altered_missing_and_incomplete(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"was not found(.|\n)*data fetch cifar100"):
        load_dataset("cifar100", data_dir=tmp_path)
    write_archive(tmp_path)
    with pytest.raises(DataError, match="does not match its published checksum"):
        load_dataset("cifar100", data_dir=tmp_path)
    without_meta = {name: CONTENTS[name] for name in ("train", "test")}
    with pytest.raises(DataError, match="cannot be read: 'meta'"):
        load_cifar100(tmp_path, write_archive(tmp_path, without_meta))
