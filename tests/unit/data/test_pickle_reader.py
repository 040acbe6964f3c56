"""Pickles are read as plain values, and nothing in them is executed."""

from __future__ import annotations

import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.data.pickle_reader import read_pickled_dict
from edgeddl.errors import DataError

DATA = np.array([[0, 127, 128], [255, 10, 39]], dtype=np.uint8)

# {"labels": [6, 9], "data": DATA} and more, as the programs named wrote it.
FROM_PYTHON_2_PROTOCOL_2 = (  # NumPy 1.16; of the same form as the official files
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
    b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01"
    b"\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x06\x00\x7f\x80"
    b"\xff\n'tbU\x06labelsq\x08]q\t(K\x06K\teU\x0bbatch_labelq\nU\x15training batch 1 of 5q"
    b"\x0bU\tfilenamesq\x0c]q\r(U\x1aleptodactylus_s_000004.pngq\x0eU\x05a.pngq\x0feu."
)
FROM_NUMPY_1_PROTOCOL_2 = (
    b"\x80\x02}q\x00(X\x06\x00\x00\x00labelsq\x01]q\x02(K\x06K\teX\x04\x00\x00\x00dataq\x03"
    b"cnumpy.core.multiarray\n_reconstruct\nq\x04cnumpy\nndarray\nq\x05K\x00\x85q\x06c_codecs\n"
    b"encode\nq\x07X\x01\x00\x00\x00bq\x08X\x06\x00\x00\x00latin1q\t\x86q\nRq\x0b\x87q\x0cRq\r"
    b"(K\x01K\x02K\x03\x86q\x0ecnumpy\ndtype\nq\x0fX\x02\x00\x00\x00u1q\x10\x89\x88\x87q\x11R"
    b"q\x12(K\x03X\x01\x00\x00\x00|q\x13NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x14b\x89"
    b"h\x07X\x08\x00\x00\x00\x00\x7f\xc2\x80\xc3\xbf\n'q\x15h\t\x86q\x16Rq\x17tq\x18bu."
)
FROM_NUMPY_1_PROTOCOL_4 = (
    b"\x80\x04\x95\xac\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x06labels\x94]\x94(K\x06K\te\x8c"
    b"\x04data\x94\x8c\x15numpy.core.multiarray\x94\x8c\x0c_reconstruct\x94\x93\x94\x8c\x05"
    b"numpy\x94\x8c\x07ndarray\x94\x93\x94K\x00\x85\x94C\x01b\x94\x87\x94R\x94(K\x01K\x02K\x03"
    b"\x86\x94h\x07\x8c\x05dtype\x94\x93\x94\x8c\x02u1\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01|"
    b"\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x89C\x06\x00\x7f\x80\xff\n'\x94t"
    b"\x94bu."
)
FROM_NUMPY_1_PROTOCOL_5 = (
    b"\x80\x05\x95\x97\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x06labels\x94]\x94(K\x06K\te\x8c"
    b"\x04data\x94\x8c\x12numpy.core.numeric\x94\x8c\x0b_frombuffer\x94\x93\x94(\x96\x06\x00"
    b"\x00\x00\x00\x00\x00\x00\x00\x7f\x80\xff\n'\x94\x8c\x05numpy\x94\x8c\x05dtype\x94\x93"
    b"\x94\x8c\x02u1\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01|\x94NNNJ\xff\xff\xff\xffJ\xff\xff"
    b"\xff\xffK\x00t\x94bK\x02K\x03\x86\x94\x8c\x01C\x94t\x94R\x94u."
)


def read(payload: bytes) -> dict[str, Any]:
    return read_pickled_dict(payload, "data_batch_1")


@pytest.mark.parametrize(
    "payload",
    [
        FROM_PYTHON_2_PROTOCOL_2,
        FROM_NUMPY_1_PROTOCOL_2,
        FROM_NUMPY_1_PROTOCOL_4,
        FROM_NUMPY_1_PROTOCOL_5,
    ],
)
def test_files_of_older_programs(payload: bytes) -> None:
    contents = read(payload)
    assert contents["labels"] == [6, 9]
    assert contents["data"].dtype == np.uint8
    np.testing.assert_array_equal(contents["data"], DATA)


def test_text_of_python_2_stays_bytes_except_as_keys() -> None:
    contents = read(FROM_PYTHON_2_PROTOCOL_2)
    assert contents["batch_label"] == b"training batch 1 of 5"
    assert contents["filenames"] == [b"leptodactylus_s_000004.png", b"a.png"]


VALUES: dict[str, Any] = {
    "text": "naïve",
    "bytes": b"\x00\xff",
    "numbers": [0, 1, 255, 256, 65536, -1, 2**40, 2**70, 0.5],
    "constants": [True, False, None],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "nested": {"a": [{}], "b": [[]]},
    "repeated": ["once", "once"],
    "long": list(range(2000)),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_values_of_every_protocol(protocol: int) -> None:
    contents = read(pickle.dumps(VALUES, protocol))
    assert contents == VALUES
    assert list(map(type, contents["constants"])) == [bool, bool, type(None)]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "array",
    [DATA, np.asfortranarray(DATA), DATA[:, ::2], np.arange(256, dtype=np.uint8)],
    ids=["C order", "Fortran order", "strided", "every byte"],
)
def test_arrays_of_every_protocol(protocol: int, array: np.ndarray) -> None:
    contents = read(pickle.dumps({"data": array, "same": array}, protocol))
    np.testing.assert_array_equal(contents["data"], array)
    np.testing.assert_array_equal(contents["same"], array)


class Malicious:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_executed(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "trace"
    payload = pickle.dumps({"data": Malicious(f"touch {trace}")}, protocol)
    with pytest.raises(DataError, match=r"data_batch_1 refers to (posix|nt)\.system"):
        read(payload)
    assert not trace.exists()
    pickle.loads(payload)  # what a common reader does
    assert trace.exists()


@pytest.mark.parametrize(
    "payload",
    [
        b"cos\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cbuiltins\nbytes\n)R.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"c_codecs\ndecode\n.",
    ],
)
def test_unknown_names_are_refused(payload: bytes) -> None:
    with pytest.raises(DataError, match="nothing was executed"):
        read(payload)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "pickle exhausted"),
        (b"(dp0\n", "pickle exhausted"),
        (b"\x80\x02}q\x01(U\x04dat", "expected 4 bytes in a string1, but only 3 remain"),
        (b"<html>", "unknown"),
        (b"}t.", "TUPLE at byte 1"),
        (b"K\x01\x86.", "too few values"),
        (b"h\x05.", "BINGET at byte 0"),
        (b"K\x01K\x02a.", "the target is not a list"),
        (b"K\x01K\x02K\x03s.", "the target is not a dict"),
        (b"}(K\x01u.", "SETITEMS"),
        (b"}]K\x01s.", "a key is list, expected str or bytes"),
        (b"K\x01)R.", "the target is not a known name"),
        (b"cnumpy\nndarray\n)R.", "ndarray"),
        (b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.", "b'O8'"),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "'rot13'"),
        (b"c_codecs\nencode\n(I1\nVlatin1\ntR.", "REDUCE"),
        (b"K\x01}b.", "expected an array"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(NNNtR}b.", "BUILD"),
        (b"P5\n.", "PERSID at byte 0: not supported"),
        (b"(i__main__\nThing\n.", "INST at byte 1: not supported"),
        (b".", "pop from empty list"),
    ],
)
def test_broken_pickles(payload: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(payload)
    assert f"data_batch_1 ({len(payload)} bytes) is not a complete pickle" in str(caught.value)


def test_an_array_must_have_as_many_bytes_as_its_shape_says() -> None:
    payload = FROM_PYTHON_2_PROTOCOL_2.replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86")
    with pytest.raises(DataError, match="cannot reshape array of size 6"):
        read(payload)


@pytest.mark.parametrize("value", [[1, 2], "text", None])
def test_only_dicts(value: object) -> None:
    with pytest.raises(DataError, match="expected a pickled dict, found"):
        read(pickle.dumps(value))


@pytest.mark.parametrize("cut", range(0, len(FROM_NUMPY_1_PROTOCOL_5), 7))
def test_every_truncation_is_an_error(cut: int) -> None:
    with pytest.raises(DataError):
        read(FROM_NUMPY_1_PROTOCOL_5[:cut])


def test_the_examples_use_what_they_claim() -> None:
    """Check the examples: otherwise the tests above would not test what their names say."""
    names = {op.name for op, _, _ in pickletools.genops(FROM_PYTHON_2_PROTOCOL_2)}
    assert "SHORT_BINSTRING" in names and "BINUNICODE" not in names
    names = {op.name for op, _, _ in pickletools.genops(FROM_NUMPY_1_PROTOCOL_5)}
    assert {"BYTEARRAY8", "STACK_GLOBAL", "FRAME"} <= names


def doubled_tuples(levels: int) -> bytes:
    """Opcodes for nested pairs of tuples: a few bytes per level, 2^levels values."""
    return b"K\x01" + b"".join(b"q%ch%c\x86" % (level, level) for level in range(levels))


# Each takes minutes, memory or the process if the value is hashed, printed or compared.
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"}" + b")" + b"\x85" * 300_000 + b"K\x01s.", "a key is tuple, expected str or bytes"),
        (b"}" + doubled_tuples(80) + b"K\x01s.", "a key is tuple, expected str or bytes"),
        (b"}K\x01K\x01s.", "a key is int, expected str or bytes"),
        (b"(" + doubled_tuples(80) + b"K\x01d.", "a key is tuple, expected str or bytes"),
        (doubled_tuples(80) + b"X\x01\x00\x00\x00x\x93.", "a name is not text"),
        (b"cnumpy\ndtype\n" + doubled_tuples(80) + b"K\x00K\x01\x87R.", r"an array of \(\(\("),
        (b"c_codecs\nencode\nX\x01\x00\x00\x00x" + doubled_tuples(80) + b"\x86R.", "encoded as"),
    ],
    ids=["deep key", "doubled key", "number", "DICT", "STACK_GLOBAL", "dtype", "encoding"],
)
def test_small_pickles_of_huge_values(payload: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(payload)
