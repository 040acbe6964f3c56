"""Checkpoints: a corrupted one is rejected, or has exactly the original contents."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np

from edgeddl.training.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from fuzzing.mutation import mutate

ARRAYS: dict[str, np.ndarray] = {
    "parameters": np.linspace(-1, 1, 40, dtype=np.float32).reshape(5, 8),
    "mean": np.arange(6, dtype=np.float64),
    "step": np.array(3, dtype=np.int64),
}
META = {"options": {"model": "resnet9", "lr": 0.1}, "history": [{"epoch": 1, "accuracy": 0.5}]}
TOKENS = (
    *(b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"\x93NUMPY\x01\x00", b"\xff" * 8, b"\0" * 8),
    *(b"'descr': '|O'", b"(1000000000, 1000000000)", b'{"a":', b"["),
)


class _Checkpoint:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "checkpoint.npz"
        write_checkpoint(self._path, Checkpoint(dict(ARRAYS), dict(META)))
        self._whole = self._path.read_bytes()

    def make(self, random: Random) -> bytes:
        return mutate(random, self._whole, TOKENS)

    def check(self, data: bytes) -> None:
        self._path.write_bytes(data)
        found = read_checkpoint(self._path)
        assert found.meta == META and found.arrays.keys() == ARRAYS.keys(), "accepted with changes"
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found.arrays[name], array)


make_target = _Checkpoint
