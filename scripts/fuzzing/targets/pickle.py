"""Pickles: corrupted data sets, and programs of random opcodes."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import numpy as np

from edgeddl.data.pickle_reader import read_pickled_dict
from fuzzing.mutation import mutate

CONTENTS = {"labels": [6, 9], "data": np.arange(12, dtype=np.uint8).reshape(2, 6), b"x": (1, 2.5)}
SAMPLES = [pickle.dumps(CONTENTS, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
# complete operations, so that most programs run for a while
OPERATIONS = (
    *(b"(", b"}", b"]", b")", b"N", b"K\x05", b"\x88", b"I7\n", b"L99L\n"),
    *(b"\x85", b"\x86", b"\x87", b"t", b"l", b"d", b"s", b"u", b"a", b"e", b"R", b"b", b"\x93"),
    *(b"\x94", b"q\x00", b"q\x01", b"h\x00", b"h\x01", b"q\x02h\x02\x86", b"q\x03h\x03h\x03\x87"),
    *(b"U\x01x", b"X\x01\x00\x00\x00x", b"C\x02u1", b"\x8c\x06latin1", b"\x8c\x02u1"),
    *(b"cnumpy\ndtype\n", b"c_codecs\nencode\n", b"cnumpy\nndarray\n", b"cos\nsystem\n"),
    *(b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy.core.numeric\n_frombuffer\n"),
    *(b"\x8a\x04\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f", b"\x80\x05", b"\x95" + b"\xff" * 8),
    *(b"G" + b"\0" * 8, b"."),
)  # fmt: skip


# each wraps a value in a new one, once or several times
WRAPPERS = (b"\x85", b"q\x02h\x02\x86", b"q\x03h\x03h\x03\x87", b"(l", b"q\x04(h\x04t")
# the opcodes before and after such a value
TEXT, NUMBER = b"X\x01\x00\x00\x00x", b"K\x01"
CONTEXTS = (
    (b"}", NUMBER + b"s"),
    (b"}" + TEXT, b"s"),
    (b"(", NUMBER + b"d"),
    (b"]", b"a"),
    (b"", TEXT + b"\x93"),
    (TEXT, b"\x93"),
    (b"cnumpy\ndtype\n", b"K\x00K\x01\x87R"),
    (b"cnumpy\ndtype\n", b"R"),
    (b"c_codecs\nencode\n" + TEXT, b"\x86R"),
    (b"cnumpy\ndtype\nC\x02u1K\x00K\x01\x87R", b"b"),
    (b"cnumpy.core.multiarray\n_reconstruct\n(NNNtR", b"b"),
)


class _Pickle:
    def __init__(self, folder: Path) -> None:
        pass

    def make(self, random: Random) -> bytes:
        if random.random() < 0.5:
            return mutate(random, random.choice(SAMPLES), OPERATIONS)
        if random.random() < 0.3:
            before, after = random.choice(CONTEXTS)
            depth = int(2 ** random.uniform(0, 17 if random.random() < 0.1 else 8))
            return before + NUMBER + random.choice(WRAPPERS) * depth + after + b"."
        few = random.sample(OPERATIONS, random.randint(2, 12))
        repeated = (
            random.choice(few) * (int(2 ** random.uniform(0, 12)) if random.random() < 0.1 else 1)
            for _ in range(random.randint(1, 60))
        )
        return random.choice((b"", b"}")) + b"".join(repeated) + b"."

    def check(self, data: bytes) -> None:
        contents = read_pickled_dict(data, "a pickle")
        assert all(isinstance(key, str) for key in contents)


make_target = _Pickle
