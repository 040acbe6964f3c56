"""Reads the pickles of the Python version of CIFAR-10 without executing them.

Unpickling can run any code. This module instead decodes the operations with `pickletools.genops`
and interprets only those that build dicts, lists, numbers, text, bytes and NumPy arrays of bytes.
Classes and functions are never imported or called: the names that an array needs are known, and any
other name is rejected.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeddl.data.images import UInt8s
from edgeddl.errors import DataError, shown


def read_pickled_dict(payload: bytes, file: str) -> dict[str, Any]:
    """The dict pickled in `payload`, with text keys; `file` is its name in errors."""
    try:
        value = _Interpreter(file).run(payload)
    except (ValueError, IndexError) as error:
        raise DataError(
            f"{file} ({len(payload):,} bytes) is not a complete pickle of plain values: {error}",
            hint="the file is damaged or not part of CIFAR-10; download the archive again",
        ) from error
    if not isinstance(value, dict):
        raise DataError(f"{file}: expected a pickled dict, found {type(value).__name__}")
    return {_as_text(key): _finished(item) for key, item in value.items()}


def _as_text(key: str | bytes) -> str:
    """Python 2 pickled its keys as bytes."""
    return key.decode("latin-1") if isinstance(key, bytes) else key


def _finished(value: object) -> object:
    return value.array if isinstance(value, _Array) else value


@dataclass(frozen=True)
class _Name:
    """The name of a class or function in the pickle, which is never imported."""

    module: str
    name: str


class _Dtype:
    """A dtype; only bytes are supported."""


@dataclass
class _Array:
    """An array; empty until BUILD sets its state."""

    array: UInt8s | None = None


def _shape_bytes(data: object, dtype: object, shape: object, order: str) -> UInt8s:
    if not (isinstance(dtype, _Dtype) and isinstance(shape, tuple)):
        raise ValueError("an array has an invalid dtype or shape")
    if not isinstance(data, bytes | bytearray):
        raise ValueError(f"the contents of an array are {type(data).__name__}, expected bytes")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape, order="F" if order == "F" else "C")


def _make_array(kind: object, shape: object, typecode: object) -> _Array:
    """Replaces numpy's _reconstruct, which makes an empty array to be filled by its state."""
    return _Array()


def _make_array_from_buffer(data: object, dtype: object, shape: object, order: str) -> _Array:
    """Replaces numpy's _frombuffer, used since protocol 5."""
    return _Array(_shape_bytes(data, dtype, shape, order))


def _make_dtype(typecode: object, align: object, copy: object) -> _Dtype:
    if typecode not in ("u1", b"u1"):
        raise ValueError(f"an array of {shown(typecode)}, expected bytes ('u1')")
    return _Dtype()


def _encode(text: str, encoding: object) -> bytes:
    """Replaces codecs.encode, with which Python 3 writes bytes in protocols 0 to 2."""
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"text encoded as {shown(encoding)}, expected 'latin1'")
    return text.encode("latin-1")


def _refuse_call(*arguments: object) -> None:
    raise ValueError("a call of ndarray, which may only be named as a class")


_KNOWN: dict[_Name, Callable[..., Any]] = {
    _Name("_codecs", "encode"): _encode,
    _Name("numpy", "dtype"): _make_dtype,
    _Name("numpy", "ndarray"): _refuse_call,
    # NumPy 2 renamed numpy.core to numpy._core.
    _Name("numpy.core.multiarray", "_reconstruct"): _make_array,
    _Name("numpy._core.multiarray", "_reconstruct"): _make_array,
    _Name("numpy.core.numeric", "_frombuffer"): _make_array_from_buffer,
    _Name("numpy._core.numeric", "_frombuffer"): _make_array_from_buffer,
}


class _Interpreter:
    """Interprets the operations of one pickle on a stack."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._stack: list[Any] = []
        self._outer_stacks: list[list[Any]] = []  # saved at each MARK
        self._memo: dict[int, Any] = {}

    def run(self, payload: bytes) -> object:
        for opcode, argument, position in pickletools.genops(payload):
            try:
                self._step(opcode.name, argument)
            except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{opcode.name} at byte {position:,}: {error}") from error
        return self._stack.pop()

    def _step(self, operation: str, argument: Any) -> None:
        """Interpret one operation, by its name in `pickletools`."""
        push = self._stack.append
        match operation:
            case "BININT1" | "BININT2" | "BININT" | "INT" | "LONG" | "LONG1" | "LONG4":
                push(argument)
            case "SHORT_BINUNICODE" | "BINUNICODE" | "BINUNICODE8" | "UNICODE":
                push(argument)
            case "SHORT_BINBYTES" | "BINBYTES" | "BINBYTES8" | "BYTEARRAY8":
                push(argument)
            case "SHORT_BINSTRING" | "BINSTRING" | "STRING":  # str of Python 2
                push(argument.encode("latin-1"))
            case "FLOAT" | "BINFLOAT":
                push(argument)
            case "NONE":
                push(None)
            case "NEWTRUE" | "NEWFALSE":
                push(operation == "NEWTRUE")
            case "EMPTY_TUPLE":
                push(())
            case "EMPTY_LIST":
                push([])
            case "EMPTY_DICT":
                push({})
            case "MARK":
                self._outer_stacks.append(self._stack)
                self._stack = []
            case "TUPLE" | "LIST" | "DICT":
                self._build_container(operation, self._pop_to_mark())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self._build_container("TUPLE", self._pop_last(int(operation[-1])))
            case "APPEND":
                self._append(self._pop_last(1))
            case "APPENDS":
                self._append(self._pop_to_mark())
            case "SETITEM":
                self._set_items(self._pop_last(2))
            case "SETITEMS":
                self._set_items(self._pop_to_mark())
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._stack[-1]
            case "MEMOIZE":
                self._memo[len(self._memo)] = self._stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                push(self._memo[argument])
            case "GLOBAL":
                self._push_name(*argument.split(" ", 1))
            case "STACK_GLOBAL":
                self._push_name(*self._pop_last(2))
            case "REDUCE":
                self._reduce(*self._pop_last(2))
            case "BUILD":
                self._set_state(self._stack.pop())
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _:
                raise ValueError("not supported")

    def _pop_last(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise ValueError("too few values on the stack")
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def _pop_to_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._outer_stacks.pop()
        return items

    def _build_container(self, kind: str, items: list[Any]) -> None:
        if kind == "DICT":
            self._stack.append({})
            self._set_items(items)
        else:
            self._stack.append(items if kind == "LIST" else tuple(items))

    def _append(self, items: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise ValueError("the target is not a list")
        self._stack[-1].extend(items)

    def _set_items(self, items: list[Any]) -> None:
        if not isinstance(self._stack[-1], dict):
            raise ValueError("the target is not a dict")
        # Hashing deeply nested tuples overflows the C stack, which no recursion limit protects.
        if wrong := [key for key in items[::2] if not isinstance(key, str | bytes)]:
            raise ValueError(f"a key is {type(wrong[0]).__name__}, expected str or bytes")
        self._stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _push_name(self, module: object, name: object) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise ValueError("a name is not text")
        known = _Name(module, name)
        if known not in _KNOWN:
            raise DataError(
                f"{self._file} refers to {module[:100]}.{name[:100]}, which no file of CIFAR-10"
                " needs; it was rejected and nothing was executed",
                hint="do not use this file; download the archive from its official site",
            )
        self._stack.append(known)

    def _reduce(self, name: object, arguments: object) -> None:
        if not (isinstance(name, _Name) and isinstance(arguments, tuple)):
            raise ValueError("the target is not a known name")
        self._stack.append(_KNOWN[name](*arguments))

    def _set_state(self, state: Any) -> None:
        target = self._stack[-1]
        if isinstance(target, _Array):
            _version, shape, dtype, is_fortran, contents = state
            target.array = _shape_bytes(contents, dtype, shape, "F" if is_fortran else "C")
        elif not isinstance(target, _Dtype):  # the state of a bytes dtype carries no information
            raise ValueError(f"the target is {type(target).__name__}, expected an array")
