"""The update kernel: in place on flat arrays, identical for every element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeddl import kernels
from edgeddl.errors import KernelError
from edgeddl.kernels.reference import optimizer
from edgeddl.kernels.segments import SEGMENT

pytestmark = pytest.mark.usefixtures("implementation")

LENGTHS = [0, 1, 3, 15, 16, 17, 1000, 40_000]


def random(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters, gradients and velocity."""
    parameters, gradients, velocity = np.random.default_rng(count).standard_normal(
        (3, count), np.float32
    )
    return parameters, gradients, velocity


def segments(*bounds: tuple[int, int, float]) -> np.ndarray:
    return np.array(list(bounds), SEGMENT)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
@pytest.mark.parametrize("count", LENGTHS)
def test_a_step_equals_float64(count: int, weight_decay: float, nesterov: bool) -> None:
    p, g, v = random(count)
    d = g + weight_decay * p.astype(np.float64)
    exact_v = 0.9 * v + d
    exact_p = p - 0.1 * (d + 0.9 * exact_v if nesterov else exact_v)
    kept = g.copy()
    kernels.momentum_sgd(p, g, v, segments((0, count, weight_decay)), 0.1, 0.9, nesterov)
    # Numbers of about 10 at most, six roundings of 2^-24 each.
    np.testing.assert_allclose(v, exact_v, rtol=0, atol=4e-6)
    np.testing.assert_allclose(p, exact_p, rtol=0, atol=4e-6)
    np.testing.assert_array_equal(g, kept)


def test_only_segments_are_written() -> None:
    arrays = [np.full(60, 7, np.float32) for _ in range(3)]
    parts = segments((10, 27, 0.01), (27, 27, 0.01), (30, 47, 0.0))
    kernels.momentum_sgd(*(array[3:] for array in arrays), parts, 0.1, 0.9, True)
    written = np.zeros(60, bool)
    written[13:30] = written[33:50] = True
    for array in (arrays[0], arrays[2]):
        np.testing.assert_array_equal(array != 7, written)
    assert (arrays[1] == 7).all()


def test_each_segment_has_its_own_decay() -> None:
    arrays, expected = random(100), random(100)
    kernels.momentum_sgd(*arrays, segments((0, 37, 0.01), (37, 100, 0.0)), 0.1, 0.9, True)
    for start, end, decay in ((0, 37, 0.01), (37, 100, 0.0)):
        part = segments((0, end - start, decay))
        kernels.momentum_sgd(*(array[start:end] for array in expected), part, 0.1, 0.9, True)
    for one, other in zip(arrays, expected, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("cut", [1, 7, 64, 999])
def test_splitting_a_segment_does_not_change_results(cut: int, nesterov: bool) -> None:
    whole, parts = random(1000), random(1000)
    kernels.momentum_sgd(*whole, segments((0, 1000, 0.01)), 0.1, 0.9, nesterov)
    pieces = segments((0, cut, 0.01), (cut, 1000, 0.01))
    kernels.momentum_sgd(*parts, pieces, 0.1, 0.9, nesterov)
    for one, other in zip(whole, parts, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("block", [1, 7, 64, 999])
def test_the_reference_does_not_depend_on_its_block_size(monkeypatch, block: int) -> None:
    whole, parts = random(1000), random(1000)
    everything = segments((0, 1000, 0.01))
    optimizer.momentum_sgd(*whole, everything, 0.1, 0.9, True)
    monkeypatch.setattr(optimizer, "BLOCK_ELEMENTS", block)
    optimizer.momentum_sgd(*parts, everything, 0.1, 0.9, True)
    for one, other in zip(whole, parts, strict=True):
        assert one.tobytes() == other.tobytes()


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


P, G, V = random(8)
WRONG: list[tuple[tuple[Any, ...], str]] = [
    ((P, G[:7], V), r"gradients must have the shape \(8\), not \(7,\)"),
    ((P, G, V.astype("f8")), "velocity must be a NumPy array of float32, not of float64"),
    ((P.reshape(2, 4), G, V), "parameters must have the shape"),
    ((P, np.repeat(G, 2)[::2], V), "gradients must be contiguous"),
    ((read_only(P.copy()), G, V), "parameters is read-only"),
    ((P, G, P), "parameters overlaps velocity"),
    ((P[:4], P[2:6], V[:4]), "parameters overlaps gradients"),
    ((P[:4], V[2:6], V[:4]), "velocity overlaps gradients"),
]


@pytest.mark.parametrize(("arrays", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_arguments_are_named(arrays: tuple[Any, ...], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        kernels.momentum_sgd(*arrays, segments(), 0.1, 0.9, False)


WRONG_SEGMENTS: dict[str, Any] = {
    "unordered": segments((4, 8, 0.0), (0, 4, 0.0)),
    "overlapping": segments((0, 5, 0.0), (4, 8, 0.0)),
    "backwards": segments((5, 4, 0.0)),
    "before the array": segments((-1, 4, 0.0)),
    "beyond the array": segments((4, 9, 0.0)),
    "beyond what a difference can hold": segments((0, 2**63 - 1, 0.0), (-(2**63), 8, 0.0)),
    "of two axes": segments((0, 8, 0.0))[None],
    "of other numbers": np.zeros((1, 3)),
    "no array": [(0, 8, 0.0)],
}


@pytest.mark.parametrize("name", WRONG_SEGMENTS)
def test_wrong_segments_are_refused_before_anything_is_written(name: str) -> None:
    arrays, expected = random(8), random(8)
    with pytest.raises(KernelError, match="segments must be"):
        kernels.momentum_sgd(*arrays, WRONG_SEGMENTS[name], 0.1, 0.9, False)
    for one, other in zip(arrays, expected, strict=True):
        assert one.tobytes() == other.tobytes()
