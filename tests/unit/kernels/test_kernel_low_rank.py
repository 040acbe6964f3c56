"""PowerSGD's products of matrices with thin matrices, against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels.low_rank import DEPENDENT
from edgeddl.kernels.matrices import Matrices, Products
from edgeddl.kernels.reference.low_rank import (
    low_rank_orthonormalise as reference_orthonormalise,
)
from edgeddl.kernels.segments import SEGMENT
from tests.unit.kernels.layers import random
from tests.unit.kernels.oracles import sum_limit

pytestmark = pytest.mark.usefixtures("implementation")

Shape = tuple[int, int]
SHAPES = [(1, 1), (2, 3), (5, 17), (7, 30), (9, 1), (64, 16), (131, 512), (33, 1000)]
EMPTY = [(0, 5), (5, 0), (0, 0)]
# Each shape alone, all of them in one bucket, and an empty bucket.
BUCKETS = [*([shape] for shape in SHAPES + EMPTY), SHAPES + EMPTY, []]
RANKS = [1, 2, 3, 4, 5, 8, 9, 32]


def place(shapes: Sequence[Shape], rank: int) -> Matrices:
    """Matrices with gaps between them."""
    places, start = [], 2
    for rows, columns in shapes:
        places.append((start, rows, columns))
        start += rows * columns + 3
    return Matrices(rank, start, places)


def numbers(count: int, seed: int) -> np.ndarray:
    """Random numbers at an unaligned address."""
    return unaligned(random((count,), seed))


def unaligned(array: np.ndarray) -> np.ndarray:
    """A copy at an address that is a multiple of 4 bytes but not of the vector size."""
    memory = np.zeros(array.size + 1, np.float32)[1:]
    memory[...] = array
    return memory


def assert_product(
    found: np.ndarray, a: np.ndarray, b: np.ndarray, plus: np.ndarray | float = 0.0
) -> None:
    """Check found = a b + plus, within the error limit of a float32 sum."""
    a, b = a.astype(float), b.astype(float)
    limit = sum_limit(a.shape[1] + 2, np.abs(a) @ np.abs(b) + np.abs(plus))
    assert (np.abs(found - (a @ b + plus)) <= limit).all()


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("shapes", BUCKETS)
def test_products_match_float64(shapes: list[Shape], rank: int) -> None:
    m = place(shapes, rank)
    errors, lefts, rights = numbers(m.errors, 0), numbers(m.lefts, 1), numbers(m.rights, 2)
    products, rests, sums = numbers(m.gradients, 3), errors.copy(), rights + 1
    between = products.copy()
    kernels.low_rank_product(m, lefts, rights, products)
    kernels.low_rank_subtract(m, lefts, rights, rests)
    kernels.low_rank_right(m, errors, lefts, sums)
    for left, right, error, product, rest, total in zip(
        m.split_lefts(lefts), m.split_rights(rights), m.split_errors(errors),
        m.split_gradients(products), m.split_errors(rests), m.split_rights(sums), strict=True,
    ):  # fmt: skip
        assert_product(product, left, right)
        assert_product(rest, -left, right, error.astype(float))
        assert_product(total, left.T, error)
    for some in (between, products):
        for gradient in m.split_gradients(some):
            gradient[...] = 0
    np.testing.assert_array_equal(products, between)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("shapes", BUCKETS)
def test_update_by_products_equals_update_by_gradients(
    shapes: list[Shape], rank: int, nesterov: bool
) -> None:
    """Bit for bit the update by stored products. Elements between the matrices do not change."""
    m, start = place(shapes, rank), 5
    length = start + m.gradients + 4
    lefts, rights, gradients = numbers(m.lefts, 0), numbers(m.rights, 1), numbers(length, 2)
    found, expected = ([numbers(length, 3), numbers(length, 4)] for _ in range(2))
    products, decays = Products(start, m, lefts, rights), 0.01 * np.arange(len(shapes))
    kernels.low_rank_product(m, lefts, rights, gradients[start:][: m.gradients])
    segments = [(*b, decay) for b, decay in zip(products.bounds(), decays, strict=True)]
    parameters, velocity = expected
    rule = 0.1, 0.9, nesterov
    kernels.momentum_sgd(parameters, gradients, velocity, np.array(segments, SEGMENT), *rule)
    kernels.momentum_sgd_of_products(found[0], products, found[1], decays, *rule)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("shapes", BUCKETS)
def test_left_factors_match_float64(shapes: list[Shape], rank: int) -> None:
    m = place(shapes, rank)
    errors, gradients, factors = numbers(m.errors, 0), numbers(m.gradients, 1), numbers(m.rights, 2)
    lefts, previous = numbers(m.lefts, 3), numbers(m.rights, 4)
    sums = errors.copy()
    for total, gradient in zip(m.split_errors(sums), m.split_gradients(gradients), strict=True):
        total += gradient
    found, products = errors.copy(), lefts.copy()
    kernels.low_rank_left(m, found, gradients, factors, products, None)
    assert found.tobytes() == sums.tobytes()
    assert_lefts(m, found, factors, products)

    found, products, rests = errors.copy(), lefts.copy(), errors.copy()
    kernels.low_rank_left(m, found, gradients, factors, products, previous)
    kernels.low_rank_subtract(m, lefts, previous, rests)
    for rest, gradient in zip(m.split_errors(rests), m.split_gradients(gradients), strict=True):
        rest += gradient
    assert found.tobytes() == rests.tobytes()
    assert_lefts(m, found, factors, products)


def assert_lefts(m: Matrices, errors: np.ndarray, factors: np.ndarray, lefts: np.ndarray) -> None:
    for error, factor, left in zip(
        m.split_errors(errors), m.split_rights(factors), m.split_lefts(lefts), strict=True
    ):
        assert_product(left, error, factor.T)


def test_long_sums_are_within_the_error_limit() -> None:
    """Sums down the columns of a matrix as tall as ResNet-18's tallest."""
    m = place([(4608, 20)], 4)
    errors, lefts, rights = numbers(m.errors, 0), numbers(m.lefts, 1), numbers(m.rights, 2)
    kernels.low_rank_right(m, errors, lefts, rights)
    assert_product(*m.split_rights(rights), m.split_lefts(lefts)[0].T, *m.split_errors(errors))


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("shapes", BUCKETS)
def test_columns_become_orthonormal(shapes: list[Shape], rank: int) -> None:
    m = place(shapes, rank)
    lefts = numbers(m.lefts, 0)
    expected = lefts.copy()
    kernels.low_rank_orthonormalise(m, lefts)
    reference_orthonormalise(m, expected, DEPENDENT)
    np.testing.assert_allclose(lefts, expected, atol=1e-6)
    for left in m.split_lefts(lefts):
        ones = np.arange(rank) < len(left)  # no more columns can be independent
        np.testing.assert_allclose(left.T @ left, np.diag(ones.astype(float)), atol=1e-6)


def orthonormalised(columns: np.ndarray) -> np.ndarray:
    rows, rank = columns.shape
    flat = columns.astype(np.float32).ravel()
    kernels.low_rank_orthonormalise(place([(rows, 1)], rank), flat)
    return flat.reshape(rows, rank)


def test_linearly_dependent_columns_become_zero() -> None:
    """Normalising them would turn rounding errors into a direction that counts twice."""
    column = random((50, 1), 0)
    columns = orthonormalised(np.concatenate([column, 2 * column, 0 * column, -column / 3], axis=1))
    assert np.linalg.norm(columns[:, 0]) == pytest.approx(1)
    assert not columns[:, 1:].any()


def test_nearly_parallel_columns_become_orthonormal() -> None:
    columns = orthonormalised(random((500, 1), 0) + 1e-4 * random((500, 5), 1))
    np.testing.assert_allclose(columns.T @ columns, np.eye(5), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e30, 1e38])
def test_very_short_and_very_long_columns_become_unit_vectors(scale: float) -> None:
    columns = orthonormalised(scale * random((50, 3), 0).clip(-3, 3))
    np.testing.assert_allclose(columns.T @ columns, np.eye(3), atol=1e-6)


@pytest.mark.parametrize("rank", [1, 3, 4, 6])
def test_results_do_not_depend_on_alignment(rank: int) -> None:
    m = place([(13, 43), (6, 10)], rank)
    results = []
    for put in (np.copy, unaligned):
        errors, gradients, factors, lefts, previous = (
            put(random((count,), seed))
            for seed, count in enumerate((m.errors, m.gradients, m.rights, m.lefts, m.rights))
        )
        kernels.low_rank_left(m, errors, gradients, factors, lefts, previous)
        kernels.low_rank_orthonormalise(m, lefts)
        kernels.low_rank_right(m, errors, lefts, previous)
        kernels.low_rank_product(m, lefts, previous, gradients)
        results.append([a.tobytes() for a in (errors, lefts, previous, gradients)])
    assert results[0] == results[1]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_infinity_and_nan_propagate(value: float) -> None:
    m = place([(6, 21)], 3)
    errors, gradients, factors = numbers(m.errors, 0), numbers(m.gradients, 1), numbers(m.rights, 2)
    lefts = numbers(m.lefts, 3)
    m.split_gradients(gradients)[0][4, 20] = value
    with np.errstate(invalid="ignore"):
        kernels.low_rank_left(m, errors, gradients, factors, lefts, factors.copy())
        finite = np.isfinite(m.split_errors(errors)[0])
        assert not finite[4, 20]
        assert finite.sum() == errors.size - 1
        left = m.split_lefts(lefts)[0]
        assert (np.isfinite(left).all(axis=1) == (np.arange(6) != 4)).all()
        kernels.low_rank_right(m, errors, lefts, factors)
        assert not np.isfinite(m.split_rights(factors)[0][:, 20]).any()
        kernels.low_rank_orthonormalise(m, lefts)
        assert np.isnan(left[4]).all()


M = place([(6, 8)], 2)
ERRORS, GRADIENTS = np.zeros(48, np.float32), np.zeros(53, np.float32)
LEFTS, RIGHTS = np.zeros(12, np.float32), np.zeros(16, np.float32)
SHARED = np.zeros(59, np.float32)  # one number less than a matrix and its left factor
PARAMETERS, VELOCITY = np.zeros(60, np.float32), np.zeros(60, np.float32)
WRONG: list[tuple[str, Callable[[], None]]] = [
    (r"lefts must have the shape \(12\)", lambda: product(LEFTS[:11], RIGHTS, GRADIENTS)),
    (r"rights must have the shape \(16\)", lambda: product(LEFTS, RIGHTS[:15], GRADIENTS)),
    (r"rights must have the shape \(16\)", lambda: product(LEFTS, RIGHTS[None], GRADIENTS)),
    ("rights must be a NumPy array", lambda: product(LEFTS, RIGHTS.astype("f8"), GRADIENTS)),
    (r"gradients must have the shape \(53\)", lambda: product(LEFTS, RIGHTS, GRADIENTS[1:])),
    ("rights must be contiguous", lambda: product(LEFTS, ERRORS[:32:2], GRADIENTS)),
    ("gradients overlaps rights", lambda: product(LEFTS, GRADIENTS[:16], GRADIENTS)),
    (r"errors must have the shape \(48\)", lambda: subtract(LEFTS, GRADIENTS)),
    ("errors overlaps lefts", lambda: subtract(SHARED[-12:], SHARED[:48])),
    ("rights overlaps errors", lambda: kernels.low_rank_right(M, ERRORS, LEFTS, ERRORS[:16])),
    (r"gradients must have the shape \(53\)", lambda: take(GRADIENTS[1:], RIGHTS, None)),
    (r"factors must have the shape \(16\)", lambda: take(GRADIENTS, RIGHTS[1:], None)),
    (r"previous must have the shape \(16\)", lambda: take(GRADIENTS, RIGHTS, RIGHTS[1:])),
    ("errors overlaps factors", lambda: take(GRADIENTS, ERRORS[:16], None)),
    ("errors overlaps previous", lambda: take(GRADIENTS, RIGHTS, ERRORS[:16])),
    (r"lefts must have the shape \(12\)", lambda: kernels.low_rank_orthonormalise(M, ERRORS)),
    ("do not fit into 60 parameters", lambda: update(PARAMETERS, start=8)),
    ("do not fit into 60 parameters", lambda: update(PARAMETERS, start=-1)),
    (r"velocity must have the shape \(59\)", lambda: update(PARAMETERS[1:])),
    ("parameters overlaps velocity", lambda: update(VELOCITY)),
    ("parameters overlaps lefts", lambda: update(PARAMETERS, lefts=PARAMETERS[:12])),
    (r"lefts must have the shape \(12\)", lambda: update(PARAMETERS, lefts=LEFTS[1:])),
    (r"weight_decays must have the shape \(1\)", lambda: update(PARAMETERS, decays=(0.0, 0.0))),
    ("within 5 gradients", lambda: Matrices(2, 5, [(0, 2, 3)])),
    ("in order", lambda: Matrices(2, 50, [(6, 2, 3), (0, 2, 3)])),
    ("disjoint", lambda: Matrices(2, 50, [(0, 2, 3), (5, 2, 3)])),
    ("in order", lambda: Matrices(2, 50, [(-1, 2, 3)])),
    ("in order", lambda: Matrices(2, 50, [(0, -2, -3)])),
    ("rank -1", lambda: Matrices(-1, 50, [(0, 2, 3)])),
    ("rank 1.5", lambda: Matrices(1.5, 50, [(0, 2, 3)])),  # type: ignore[arg-type]
]


def product(lefts: np.ndarray, rights: np.ndarray, gradients: np.ndarray) -> None:
    kernels.low_rank_product(M, lefts, rights, gradients)


def update(
    parameters: np.ndarray,
    start: int = 7,
    lefts: np.ndarray = LEFTS,
    decays: tuple[float, ...] = (0.0,),
) -> None:
    products = Products(start, M, lefts, RIGHTS)
    kernels.momentum_sgd_of_products(
        parameters, products, VELOCITY, np.array(decays), 0.1, 0.9, False
    )


def subtract(lefts: np.ndarray, errors: np.ndarray) -> None:
    kernels.low_rank_subtract(M, lefts, RIGHTS, errors)


def take(gradients: np.ndarray, factors: np.ndarray, previous: np.ndarray | None) -> None:
    kernels.low_rank_left(M, ERRORS, gradients, factors, LEFTS, previous)


@pytest.mark.parametrize(("message", "call"), WRONG)
def test_wrong_arguments_are_named(message: str, call: Callable[[], None]) -> None:
    with pytest.raises(KernelError, match=message):
        call()


def test_read_only_outputs_are_rejected() -> None:
    gradients, lefts = GRADIENTS.copy(), LEFTS.copy()
    gradients.flags.writeable = lefts.flags.writeable = False
    with pytest.raises(KernelError, match="gradients is read-only"):
        kernels.low_rank_product(M, LEFTS, RIGHTS, gradients)
    with pytest.raises(KernelError, match="lefts is read-only"):
        kernels.low_rank_orthonormalise(M, lefts)
