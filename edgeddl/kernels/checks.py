"""What kernels demand of their arguments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeddl.errors import KernelError


def check_array(name: str, array: np.ndarray, shape: Sequence[int | None]) -> None:
    """A float32 NumPy array of the given shape, in which None stands for any size."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        found = getattr(array, "dtype", type(array).__name__)
        raise KernelError(f"{name} must be a NumPy array of float32, not of {found}")
    fits = array.ndim == len(shape) and all(
        expected in (None, found) for expected, found in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise KernelError(f"{name} must have the shape ({wanted}), not {array.shape}")


def check_rows(name: str, array: np.ndarray) -> None:
    """A float32 array (N, C, H, W) or (N, C)."""
    check_array(name, array, (None,) * (2 if array.ndim == 2 else 4))


def check_channels(c: int, **vectors: np.ndarray) -> None:
    """Vectors with one number for each of c channels."""
    for name, vector in vectors.items():
        check_array(name, vector, (c,))
