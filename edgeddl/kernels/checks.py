"""Argument checks of the kernels; each raises a KernelError."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from numpy.typing import DTypeLike

from edgeddl.errors import KernelError

_FLOAT32 = np.dtype(np.float32)
_FOUR_WHOLE = [int] * 4


def check_array(name: str, array: np.ndarray, shape: Sequence[int | None]) -> None:
    """A float32 NumPy array of the given shape; None stands for any size."""
    if is_plain(array) and array.shape == shape:  # this runs hundreds of times in a training step
        return
    if not isinstance(array, np.ndarray) or array.dtype != _FLOAT32:
        found = getattr(array, "dtype", type(array).__name__)
        raise KernelError(f"{name} must be a NumPy array of float32, not of {found}")
    check_shape(name, array.shape, shape)
    if not array.flags.aligned:
        raise KernelError(f"{name} must be aligned in memory: its address is not a multiple of 4")


def check_shape(name: str, found: Sequence[int], shape: Sequence[int | None]) -> None:
    """A shape; None stands for any size."""
    sizes = zip(shape, found, strict=False)
    fits = all(expected is None or expected == size for expected, size in sizes)
    if len(found) != len(shape) or not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise KernelError(f"{name} must have the shape ({wanted}), not {found}")


def is_plain(array: object) -> bool:
    """Whether it is an aligned float32 array, which needs no slower check."""
    return type(array) is np.ndarray and array.dtype is _FLOAT32 and array.flags.aligned


def is_whole(number: object) -> bool:
    """Whether it is an integer of Python or NumPy."""
    return type(number) is int or isinstance(number, Integral)


def check_images(name: str, array: np.ndarray) -> None:
    """A float32 array (N, C, H, W); only N may be 0."""
    if not (is_plain(array) and array.ndim == 4):
        check_array(name, array, (None, None, None, None))
    if array.size == 0:
        check_image_shape(name, array.shape)


def check_image_shape(name: str, shape: Sequence[int]) -> None:
    """A shape (N, C, H, W); only N may be 0."""
    if list(map(type, shape)) == _FOUR_WHOLE and min(shape) > 0:  # the usual case
        return
    whole = len(shape) == 4 and all(map(is_whole, shape))
    if not whole or shape[0] < 0 or min(shape[1:]) < 1:
        raise KernelError(
            f"{name} must have the shape (images, channels, height, width), with at least one "
            f"channel and one pixel, not {tuple(shape)}"
        )


def check_rows(name: str, array: np.ndarray) -> None:
    """A float32 array (N, C, H, W) or (N, C)."""
    if is_plain(array) and array.ndim in (2, 4) and array.size:
        return
    if getattr(array, "ndim", None) != 2:
        check_images(name, array)
        return
    check_array(name, array, (None, None))
    if array.shape[1] < 1:
        raise KernelError(f"{name} must have at least one column, not the shape {array.shape}")


def check_channels(c: int, **vectors: np.ndarray) -> None:
    """Vectors with one number for each of c channels."""
    for name, vector in vectors.items():
        check_array(name, vector, (c,))


def check_groups(groups: int, c: int, k: int) -> None:
    """A number of groups that divides c input and k output channels."""
    if not is_whole(groups) or groups < 1 or c % groups or k % groups or k < 1:
        raise KernelError(
            f"{c} input and {k} output channels cannot be split into groups={groups} equal groups"
        )


def check_writable(name: str, out: np.ndarray, **inputs: np.ndarray) -> None:
    """A writable array that does not overlap the inputs in memory.

    Only memory bounds are compared: an exact answer for interleaved arrays may take exponential
    time.
    """
    if not out.flags.writeable:
        raise KernelError(f"{name} is read-only, but must be writable")
    for other, array in inputs.items():
        if not _have_own_memory(out, array) and np.may_share_memory(out, array):
            raise KernelError(f"{name} overlaps {other} in memory")


def _have_own_memory(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether they are, or are views of, two different arrays that own their memory.

    This settles most cases. NumPy's function releases the GIL, and the next kernel is a better
    moment for other threads to run.
    """
    one = one if one.base is None else one.base
    other = other if other.base is None else other.base
    if one is other or not (type(one) is type(other) is np.ndarray):
        return False
    return one.flags.owndata and other.flags.owndata


def check_vector(name: str, out: np.ndarray | None, c: int, **inputs: np.ndarray) -> None:
    """None, or a vector to write to with one number per channel, which overlaps no input."""
    if out is not None:
        check_contiguous((c,), **{name: out})
        check_writable(name, out, **inputs)


def check_flat(length: int, **arrays: np.ndarray) -> None:
    """Contiguous float32 arrays with one axis of this length."""
    check_contiguous((length,), **arrays)


def check_contiguous(shape: Sequence[int | None], **arrays: np.ndarray) -> None:
    """Contiguous float32 arrays of this shape; None stands for any size."""
    for name, array in arrays.items():
        check_array(name, array, shape)
        if not array.flags.c_contiguous:
            raise KernelError(f"{name} must be contiguous")


def check_dtype(name: str, array: np.ndarray, dtypes: tuple[DTypeLike, ...]) -> None:
    """A contiguous array, of any number of axes, with one of these dtypes."""
    if not isinstance(array, np.ndarray) or array.dtype not in dtypes:
        found = getattr(array, "dtype", type(array).__name__)
        wanted = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
        raise KernelError(f"{name} must be a NumPy array of {wanted}, not of {found}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise KernelError(f"{name} must be contiguous and aligned in memory")


def check_labels(name: str, t: np.ndarray, rows: int, classes: int, ignore_label: int) -> None:
    """An int32 label for each row: below `classes`, or the one to ignore."""
    if not isinstance(t, np.ndarray) or t.dtype != np.int32 or t.shape != (rows,):
        found = f"{getattr(t, 'dtype', type(t).__name__)} of {getattr(t, 'shape', ())}"
        raise KernelError(f"{name} must be int32 of shape ({rows}), not {found}")
    if not -(2**31) <= ignore_label < 2**31:
        raise KernelError(f"the label to ignore must be an int32, not {ignore_label}")
    wrong = ((t < 0) | (t >= classes)) & (t != ignore_label)
    if wrong.any():
        row = int(wrong.argmax())
        raise KernelError(
            f"{name} must be below {classes} or {ignore_label} to be ignored, but {name}[{row}] is"
            f" {t[row]}"
        )
