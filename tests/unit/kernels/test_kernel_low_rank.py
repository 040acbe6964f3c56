"""PowerSGD's products of a matrix with thin ones, against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from tests.unit.kernels.layers import random
from tests.unit.kernels.oracles import sum_limit

pytestmark = pytest.mark.usefixtures("implementation")

SHAPES = [(1, 1), (2, 3), (5, 17), (7, 30), (9, 1), (64, 16), (131, 512), (33, 1000)]
EMPTY = [(0, 5), (5, 0), (0, 0)]
RANKS = [1, 2, 3, 4, 5, 8, 9, 32]

Thin = tuple[np.ndarray, np.ndarray, np.ndarray]


def make(rows: int, columns: int, rank: int) -> Thin:
    """A matrix, left and right; in memory that begins anywhere."""
    shapes = ((rows, columns), (rows, rank), (rank, columns))
    matrix, left, right = (unaligned(random(s, seed)) for seed, s in enumerate(shapes))
    return matrix, left, right


def unaligned(array: np.ndarray) -> np.ndarray:
    """The same at an address that is a multiple of 4, not of a vector's size."""
    memory = np.zeros(array.size + 1, np.float32)[1:].reshape(array.shape)
    memory[...] = array
    return memory


def assert_product(
    found: np.ndarray, a: np.ndarray, b: np.ndarray, plus: np.ndarray | float = 0.0
) -> None:
    """found = a b + plus, as near as a float32 sum is."""
    a, b = a.astype(float), b.astype(float)
    limit = sum_limit(a.shape[1] + 2, np.abs(a) @ np.abs(b) + np.abs(plus))
    assert (np.abs(found - (a @ b + plus)) <= limit).all()


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("shape", SHAPES + EMPTY)
def test_products(shape: tuple[int, int], rank: int) -> None:
    matrix, left, right = make(*shape, rank)
    product, rest, sums = matrix + 1, matrix.copy(), right + 1
    kernels.low_rank_product(left, right, product)
    assert_product(product, left, right)
    kernels.low_rank_subtract(left, right, rest)
    assert_product(rest, -left, right, matrix.astype(float))
    kernels.low_rank_right(matrix, left, sums)
    assert_product(sums, left.T, matrix)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("shape", SHAPES + EMPTY)
def test_left(shape: tuple[int, int], rank: int) -> None:
    matrix, left, factor = make(*shape, rank)
    gradient, told = unaligned(random(shape, 5)), unaligned(random((rank, shape[1]), 6))
    total, product = matrix.copy(), left.copy()
    kernels.low_rank_left(total, gradient, factor, product, None)
    np.testing.assert_array_equal(total, matrix + gradient)
    assert_product(product, total, factor.T)

    found, found_left, rest = matrix.copy(), left.copy(), matrix.copy()
    kernels.low_rank_left(found, gradient, factor, found_left, told)
    kernels.low_rank_subtract(left, told, rest)
    assert found.tobytes() == (rest + gradient).tobytes()
    assert_product(found_left, found, factor.T)


def test_long_sums() -> None:
    """Down a matrix as tall as ResNet-18's tallest."""
    matrix, left, right = make(4608, 20, 4)
    kernels.low_rank_right(matrix, left, right)
    assert_product(right, left.T, matrix)


@pytest.mark.parametrize("rank", [1, 3, 4, 6])
def test_bits_do_not_depend_on_the_address(rank: int) -> None:
    results = []
    for place in (np.copy, unaligned):
        matrix, left, right = (place(a) for a in make(13, 43, rank))
        kernels.low_rank_left(matrix, matrix.copy(), right, left, right.copy())
        kernels.low_rank_right(matrix, left, right)
        results.append([a.tobytes() for a in (matrix, left, right)])
    assert results[0] == results[1]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(value: float) -> None:
    matrix, left, factor = make(6, 21, 3)
    gradient = random((6, 21), 5)
    gradient[4, 20] = value
    with np.errstate(invalid="ignore"):
        kernels.low_rank_left(matrix, gradient, factor, left, factor.copy())
        finite = np.isfinite(matrix)
        assert not finite[4, 20]
        assert finite.sum() == matrix.size - 1
        assert (np.isfinite(left).all(axis=1) == (np.arange(6) != 4)).all()
        kernels.low_rank_right(matrix, left, factor)
        assert not np.isfinite(factor[:, 20]).any()


MATRIX, LEFT, RIGHT = make(6, 8, 2)
SHARED = np.zeros(59, np.float32)  # one less than a matrix and its left have
WRONG: list[tuple[str, Callable[[], None]]] = [
    (r"left must have the shape \(6, any\)", lambda: product(LEFT[:5], RIGHT, MATRIX)),
    (r"right must have the shape \(2, 8\)", lambda: product(LEFT, RIGHT[:1], MATRIX)),
    (r"right must have the shape \(2, 8\)", lambda: product(LEFT, RIGHT[:, :7], MATRIX)),
    ("right must be a NumPy array", lambda: product(LEFT, RIGHT.astype("f8"), MATRIX)),
    (r"matrix must have the shape \(any, any\)", lambda: product(LEFT, RIGHT, MATRIX[0])),
    ("matrix must be contiguous", lambda: product(LEFT, RIGHT[:, :4].copy(), MATRIX[:, ::2])),
    ("left must be contiguous", lambda: product(np.asfortranarray(LEFT), RIGHT, MATRIX)),
    ("matrix overlaps right", lambda: product(MATRIX[:2, :2].copy(), MATRIX[:2], MATRIX[:2])),
    (
        "matrix overlaps left",
        lambda: subtract(SHARED[-12:].reshape(6, 2), SHARED[:48].reshape(6, 8)),
    ),
    ("right overlaps matrix", lambda: kernels.low_rank_right(MATRIX, LEFT, MATRIX[:2])),
    (r"gradient must have the shape \(6, 8\)", lambda: take(MATRIX[:5].copy(), RIGHT, None)),
    (r"factor must have the shape \(2, 8\)", lambda: take(MATRIX.copy(), RIGHT[:1], None)),
    (r"told must have the shape \(2, 8\)", lambda: take(MATRIX.copy(), RIGHT, RIGHT[:1])),
    ("matrix overlaps gradient", lambda: take(MATRIX, RIGHT, None)),
    ("matrix overlaps told", lambda: take(MATRIX.copy(), RIGHT, MATRIX[:2])),
]


def product(left: np.ndarray, right: np.ndarray, matrix: np.ndarray) -> None:
    kernels.low_rank_product(left, right, matrix)


def subtract(left: np.ndarray, matrix: np.ndarray) -> None:
    kernels.low_rank_subtract(left, RIGHT, matrix)


def take(gradient: np.ndarray, factor: np.ndarray, told: np.ndarray | None) -> None:
    kernels.low_rank_left(MATRIX, gradient, factor, LEFT, told)


@pytest.mark.parametrize(("message", "call"), WRONG)
def test_wrong_arguments(message: str, call: Callable[[], None]) -> None:
    with pytest.raises(KernelError, match=message):
        call()


def test_what_is_written_to_may_not_be_read_only() -> None:
    matrix = MATRIX.copy()
    matrix.flags.writeable = False
    with pytest.raises(KernelError, match="matrix cannot be written to"):
        kernels.low_rank_product(LEFT, RIGHT, matrix)
