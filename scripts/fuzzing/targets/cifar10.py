"""CIFAR-10 archives and folders with changed bytes."""

from __future__ import annotations

import gzip
import io
import pickle
import shutil
import tarfile
from pathlib import Path
from random import Random

import numpy as np

from edgeddl.data.cifar10 import Layout, load_cifar10
from fuzzing.mutation import mutate

LAYOUT = Layout(images_per_file=1, train_files=1, balanced=False, md5={})
BATCH = {"labels": [3], "data": np.zeros((1, 3072), dtype=np.uint8)}
# Types of tar members other than files: links, devices, long names, sparse files, settings.
TOKENS = (*(kind.encode() for kind in "1234567LKSxgX"), b"\0" * 512, b"30 mtime=1e999\n", b"\xff")
HEADER_BYTES = 512
KINDS = (b"tar", b"tgz", b"py\0")


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in LAYOUT.batches:
            member = tarfile.TarInfo(f"{name}.bin")
            member.size = 3073
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


class _Cifar10:
    def __init__(self, folder: Path) -> None:
        self._folder, self._tar = folder / "data", _tar()
        self._packed = gzip.compress(self._tar, mtime=0)

    def make(self, random: Random) -> bytes:
        kind = random.choice(KINDS)
        if kind == b"py\0":
            return kind + mutate(random, pickle.dumps(BATCH, random.randrange(6)), TOKENS)
        if kind == b"tgz":
            return kind + mutate(random, self._packed, TOKENS)
        # Mostly headers, with a corrected checksum: otherwise nearly all cases would fail there.
        header = bytearray(mutate(random, self._tar[:HEADER_BYTES], TOKENS)[:HEADER_BYTES])
        header.extend(bytes(HEADER_BYTES - len(header)))
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        return kind + bytes(header) + self._tar[HEADER_BYTES:]

    def check(self, data: bytes) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        kind, contents = data[:3], data[3:]
        if kind == b"py\0":
            for name in LAYOUT.batches:
                (self._folder / name).write_bytes(contents)
        else:
            packed = contents if kind == b"tgz" else gzip.compress(contents, 1)
            (self._folder / "cifar-10-binary.tar.gz").write_bytes(packed)
        loaded = load_cifar10([self._folder], LAYOUT)
        assert not loaded.verified and len(loaded.train) == len(loaded.test) == 1


make_target = _Cifar10
