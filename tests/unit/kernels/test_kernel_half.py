"""Half precision for the wire, against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeddl import kernels
from edgeddl.errors import KernelError

pytestmark = pytest.mark.usefixtures("implementation")

ONE = 2.0**112  # the factor with which numbers are encoded as they are


def round_trip(x: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
    halves, back = np.zeros(x.shape, np.uint16), np.zeros_like(x)
    kernels.encode_half(x, factor, halves)
    kernels.decode_half(halves, factor, back)
    return halves.view(np.float16), back


@pytest.mark.parametrize("length", [0, 1, 5, 16384, 16385, 50_000])
def test_as_numpys_half_precision_up_to_ties(length: int) -> None:
    """Ties go away from zero here and to even in NumPy: one unit in the last place apart."""
    x = np.random.default_rng(0).normal(scale=10, size=length).astype(np.float32)
    halves, back = round_trip(x, ONE)
    expected = x.astype(np.float16)
    unit = np.spacing(np.abs(expected))
    assert (np.abs(halves.astype(np.float32) - expected.astype(np.float32)) <= unit).all()
    np.testing.assert_array_equal(back, halves.astype(np.float32))
    assert (np.abs(back - x) <= np.abs(x) * 2.0**-11 + 2.0**-25).all()


def test_every_half_precision_number_survives() -> None:
    finite = np.arange(0x10000, dtype=np.uint32).astype(np.uint16).view(np.float16)
    x = finite[np.isfinite(finite)].astype(np.float32)
    halves, back = round_trip(x, ONE)
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(np.signbit(back), np.signbit(x))  # minus zero too
    np.testing.assert_array_equal(halves, finite[np.isfinite(finite)])


@given(st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=50), st.integers(-40, 0))
def test_relative_to_the_largest(values: list[float], shift: int) -> None:
    x = np.array(values, np.float32) * np.float32(2.0**shift)
    largest = float(np.abs(x).max())
    factor = 2.0 ** (112 + int(np.frexp(largest)[1]) - 15)
    back = round_trip(x, factor)[1]
    assert (np.abs(back - x) <= np.abs(x) * 2.0**-11 + largest * 2.0**-39).all()


def test_nan_as_a_factor_gives_nan() -> None:
    back = np.zeros(3, np.float32)
    kernels.decode_half(np.zeros(3, np.uint16), float("nan"), back)
    assert np.isnan(back).all()


def test_wrong_arguments() -> None:
    x, halves = np.zeros(4, np.float32), np.zeros(4, np.uint16)
    for numbers, out in (
        (x, halves[:3]),
        (x, halves.view(np.float16)),
        (x[::2], halves[:2]),
        (x.astype(np.float64), halves),
    ):
        with pytest.raises(KernelError):
            kernels.encode_half(numbers, ONE, out)
