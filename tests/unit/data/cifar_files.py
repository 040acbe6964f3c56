"""CIFAR-10 files of the official form, with random contents and few images."""

from __future__ import annotations

import pickle
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl.data.cifar10 import Layout

LAYOUT = Layout(images_per_file=20, balanced=False, md5={})
RECORD_BYTES = 3073


@dataclass(frozen=True)
class Batch:
    """Contents of one file."""

    labels: np.ndarray
    planes: np.ndarray

    def binary(self) -> bytes:
        return np.concatenate([self.labels[:, None], self.planes], axis=1).tobytes()

    def contents(self) -> dict[str, Any]:
        return {"labels": self.labels.tolist(), "data": self.planes, "batch_label": "of 5"}


def make_batches() -> dict[str, Batch]:
    random = np.random.default_rng(0)
    count = LAYOUT.images_per_file
    return {
        name: Batch(
            random.integers(0, 10, count, dtype=np.uint8),
            random.integers(0, 256, (count, 3072), dtype=np.uint8),
        )
        for name in LAYOUT.batches
    }


def write_binary(folder: Path) -> Path:
    """The unpacked binary version in a folder."""
    target = folder / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    for name, batch in make_batches().items():
        (target / f"{name}.bin").write_bytes(batch.binary())
    (target / "batches.meta.txt").write_text("airplane\n")
    return target


def write_python(folder: Path, protocol: int = 2) -> Path:
    """The unpacked Python version in a folder."""
    target = folder / "cifar-10-batches-py"
    target.mkdir(parents=True)
    for name, batch in make_batches().items():
        (target / name).write_bytes(pickle.dumps(batch.contents(), protocol))
    (target / "batches.meta").write_bytes(pickle.dumps({"label_names": ["airplane"]}, protocol))
    return target


def pack(folder: Path, archive_name: str) -> Path:
    """An archive of an unpacked folder beside it; the last file comes first in it."""
    path = folder.parent / archive_name
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(folder.iterdir(), reverse=True):
            archive.add(file, arcname=f"{folder.name}/{file.name}")
    return path


def expected_images() -> tuple[np.ndarray, np.ndarray]:
    """All images as (n, 32, 32, 3) and their labels, those for testing last."""
    batches = make_batches().values()
    planes = np.concatenate([batch.planes for batch in batches]).reshape(-1, 3, 32, 32)
    return planes.transpose(0, 2, 3, 1), np.concatenate([batch.labels for batch in batches])
