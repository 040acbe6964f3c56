"""How the reference splits a batch to limit the memory of its windows."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl.kernels.reference import columns
from edgeddl.kernels.window import Window
from tests.unit.kernels.implementations import by_reference
from tests.unit.kernels.layers import PASSES, Layer, exact_and_limit_of, three_passes


@pytest.mark.parametrize("stride", [1, 2])
def test_results_hardly_depend_on_the_size_of_the_column_buffer(monkeypatch, stride: int) -> None:
    layer = Layer((7, 5, 8, 8), 6, Window(3, 3, stride, stride, 1, 1))
    x, W, gy = layer.arrays()
    whole = by_reference(three_passes, layer, x, W, gy)
    monkeypatch.setattr(columns, "COLUMN_BYTES", 3 * gy[0, 0].size * W[0].size * 4)
    parts = by_reference(three_passes, layer, x, W, gy)
    again = by_reference(three_passes, layer, x, W, gy)
    for name, one, other, repeated in zip(PASSES, whole, parts, again, strict=True):
        _, limit = exact_and_limit_of(layer, name)
        assert (abs(one - other) <= 2 * limit).all()
        np.testing.assert_array_equal(other, repeated)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32])
@pytest.mark.parametrize("bytes_each", [1, columns.COLUMN_BYTES // 3, 5 * columns.COLUMN_BYTES])
def test_images_are_split_evenly_within_the_memory_limit(count: int, bytes_each: int) -> None:
    parts = columns.split_images(count, bytes_each)
    sizes = [part.stop - part.start for part in parts]
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(count))
    assert all(size * bytes_each <= columns.COLUMN_BYTES or size == 1 for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1
