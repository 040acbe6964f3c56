"""The declarations in csrc/edgeddl.h against the bindings and structures in Python."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

import edgeddl.comm.ring.binding  # noqa: F401  declares ring_sum
from edgeddl import kernels
from edgeddl.kernels.convolution import CONV
from edgeddl.kernels.half_block import BLOCK, HALF_BLOCK
from edgeddl.kernels.matrices import PLACE
from edgeddl.kernels.pooling import POOLING
from edgeddl.kernels.segments import SEGMENT
from edgeddl.kernels.selection import selected
from tests.support import REPOSITORY

CSRC = REPOSITORY / "edgeddl/kernels/csrc"


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


HEADER = without_comments((CSRC / "edgeddl.h").read_text())
STRUCTS = {
    name: fields
    for fields, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", HEADER, re.DOTALL)
}
FUNCTIONS = {
    name: (returned.strip(), [" ".join(one.split()) for one in arguments.split(",")])
    for returned, name, arguments in re.findall(
        r"^([\w ]+[ *])edgeddl_(\w+)\(([^)]*)\);", HEADER, re.MULTILINE
    )
}
# Library calls these itself, without a binding.
OF_THE_LIBRARY = {
    "compiler": ("const char *", ["void"]),
    "keep_memory": ("void", ["void"]),
    "set_threads": ("void", ["int threads"]),
    "get_threads": ("int", ["void"]),
    "measure_peak": ("double", ["int threads"]),
}
BINDINGS = {function.name: function for function in selected.functions}
DTYPES = {
    "conv": CONV,
    "pooling": POOLING,
    "segment": SEGMENT,
    "matrix_place": PLACE,
    "half_block": HALF_BLOCK,
}


def letters_for(argument: str) -> str:
    """The letters of binding.py that fit this argument in C."""
    kind = argument[: re.search(r"\w+$", argument).start()].strip()  # type: ignore[union-attr]
    if "*" not in kind:
        return {"int": "i", "long": "l", "double": "d", "char": "c"}[kind]
    if not kind.startswith("const"):
        return "wopv"  # pointers without const need not be written
    return "spv" if kind.split()[1] in STRUCTS else "pv"


def test_every_declaration_has_a_binding_and_every_binding_a_declaration() -> None:
    assert len(BINDINGS) == len(selected.functions)
    assert set(FUNCTIONS) == set(BINDINGS) | set(OF_THE_LIBRARY)
    assert {name: FUNCTIONS[name] for name in OF_THE_LIBRARY} == OF_THE_LIBRARY


@pytest.mark.parametrize("name", BINDINGS)
def test_arguments(name: str) -> None:
    returned, arguments = FUNCTIONS[name]
    assert returned == "int"
    assert len(arguments) == len(BINDINGS[name].arguments)
    for argument, letter in zip(arguments, BINDINGS[name].arguments, strict=True):
        assert letter in letters_for(argument), f"{argument} of edgeddl_{name}"


@pytest.mark.skipif(selected.library is None, reason="there are no native kernels here")
@pytest.mark.parametrize("name", BINDINGS)
def test_bound_types(name: str) -> None:
    """Numbers are passed as ctypes of the declared size."""
    of_c = {"i": ctypes.c_int, "l": ctypes.c_long, "d": ctypes.c_double, "c": ctypes.c_char}
    for letter, bound in zip(BINDINGS[name].arguments, BINDINGS[name].call.argtypes, strict=True):
        assert bound is of_c.get(letter, bound)
        assert letter in of_c or not isinstance(bound, type(ctypes.c_int))


@pytest.mark.parametrize("name", DTYPES)
def test_structures(name: str) -> None:
    kinds = {"long": np.dtype(ctypes.c_long), "double": np.float64, "float": np.float32}
    kinds["uint16_t"] = np.uint16
    expected = []
    for line in STRUCTS[name].split(";"):
        if line.strip():
            kind, names = line.split(maxsplit=1)
            for field in names.split(","):
                field_name, _, length = field.strip().partition("[")
                expected.append((field_name, kinds[kind], (BLOCK,) if length else ()))
    dtype = np.dtype(expected, align=True)
    assert DTYPES[name] == dtype
    assert set(DTYPES) == set(STRUCTS)


def test_the_block_size() -> None:
    assert f"enum {{ BLOCK = {BLOCK} }};" in HEADER


def test_files_that_define_exported_functions_include_the_header() -> None:
    for path in CSRC.glob("*.c"):
        text = path.read_text()
        defines = re.search(r"^\w[\w *]*edgeddl_\w+\(", without_comments(text), re.MULTILINE)
        assert not defines or '#include "edgeddl.h"' in text, path.name


def test_the_kernels_are_imported() -> None:
    assert kernels.chosen()  # importing them declares the bindings
