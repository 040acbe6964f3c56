"""Half precision for the wire, compared with NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels.half_block import BLOCK, empty_blocks
from tests.unit.kernels.implementations import by_reference

pytestmark = pytest.mark.usefixtures("implementation")


def round_trip(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    blocks, back = empty_blocks(x.size), np.zeros_like(x)
    kernels.encode_half(x, blocks)
    kernels.decode_half(blocks, back)
    return blocks, back


@pytest.mark.parametrize("length", [0, 1, 5, 1023, 1024, 16385, 50_000])
def test_rounding_error_is_within_eleven_bits(length: int) -> None:
    x = np.random.default_rng(0).normal(scale=10, size=length).astype(np.float32)
    blocks, back = round_trip(x)
    padded = np.zeros((len(blocks), BLOCK), np.float32)
    padded.reshape(-1)[:length] = np.abs(x)
    largest = np.repeat(padded.max(axis=1, initial=0), BLOCK)[:length]
    assert (np.abs(back - x) <= np.abs(x) * 2.0**-11 + largest * 2.0**-39).all()
    assert blocks.tobytes() == by_reference(round_trip, x)[0].tobytes()


def test_every_half_precision_number_is_preserved() -> None:
    """Each block contains 2**14, which gives it the factor of unscaled numbers."""
    finite = np.arange(0x7800, dtype=np.uint16)  # below 2**15
    halves = np.concatenate([finite, finite | 0x8000]).view(np.float16).astype(np.float32)
    rows = np.full((-(-halves.size // (BLOCK - 1)), BLOCK), 2.0**14, np.float32)
    rows[:, 1:] = np.resize(halves, (len(rows), BLOCK - 1))
    blocks, back = round_trip(rows.reshape(-1))
    np.testing.assert_array_equal(blocks["factor"], 2.0**112)
    np.testing.assert_array_equal(blocks["halves"].view(np.float16), rows)
    np.testing.assert_array_equal(back, rows.reshape(-1))
    np.testing.assert_array_equal(np.signbit(back), np.signbit(rows.reshape(-1)))  # and minus zero


@given(st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=50), st.integers(-40, 0))
def test_rounding_error_of_arbitrary_numbers_is_within_eleven_bits(
    values: list[float], shift: int
) -> None:
    x = np.array(values, np.float32) * np.float32(2.0**shift)
    blocks, back = round_trip(x)
    largest = float(np.abs(x).max())
    assert (np.abs(back - x) <= np.abs(x) * 2.0**-11 + largest * 2.0**-39).all()
    assert blocks.tobytes() == by_reference(round_trip, x)[0].tobytes()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 2.0**30, -3.4e38])
def test_a_number_not_finite_or_too_large_makes_its_block_nan(number: float) -> None:
    x = np.ones(3 * BLOCK, np.float32)
    x[BLOCK + 7] = number
    back = round_trip(x)[1].reshape(3, BLOCK)
    assert np.isnan(back[1]).all()
    np.testing.assert_array_equal(back[[0, 2]], 1)


@pytest.mark.parametrize("number", [0.0, 1e-45, 1e-39, 1.2e-38, 1.07e9])
def test_the_smallest_and_largest_numbers_are_preserved(number: float) -> None:
    x = np.array([number, -number, 0], np.float32)
    back = round_trip(x)[1]
    np.testing.assert_allclose(back, x, rtol=2.0**-11, atol=1.5e-45)


def test_encoding_overwrites_the_whole_block() -> None:
    x = np.ones(5, np.float32)
    blocks, fresh = empty_blocks(5), empty_blocks(5)
    blocks["halves"] = 0x7E00
    kernels.encode_half(x, blocks)
    kernels.encode_half(x, fresh)
    assert blocks.tobytes() == fresh.tobytes()


def test_wrong_arguments_are_rejected() -> None:
    x, blocks = np.zeros(2000, np.float32), empty_blocks(2000)
    for numbers, out in (
        (x, blocks[:1]),
        (x, np.zeros(2, np.float16)),
        (x[::2], blocks[:1]),
        (x.astype(np.float64), blocks),
        (x.reshape(2, 1000), blocks),
    ):
        with pytest.raises(KernelError):
            kernels.encode_half(numbers, out)
        with pytest.raises(KernelError):
            kernels.decode_half(out, numbers)
