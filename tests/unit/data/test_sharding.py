"""Every image belongs to exactly one rank."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgeddl.data.sharding import epoch_permutation, split_evenly


@given(count=st.integers(0, 10_000), parts=st.integers(1, 300))
def test_parts_follow_each_other_and_differ_by_at_most_one(count: int, parts: int) -> None:
    slices = [split_evenly(count, parts, index) for index in range(parts)]
    assert slices[0][0] == 0 and slices[-1][1] == count
    assert all(before[1] == after[0] for before, after in pairwise(slices))
    sizes = [stop - start for start, stop in slices]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_the_first_parts_are_longer() -> None:
    assert [split_evenly(10, 4, index) for index in range(4)] == [(0, 3), (3, 6), (6, 8), (8, 10)]
    assert [split_evenly(1, 3, index) for index in range(3)] == [(0, 1), (1, 1), (1, 1)]


@given(seed=st.integers(-(2**63), 2**64), epoch=st.integers(0, 10**6), count=st.integers(1, 500))
def test_an_epoch_visits_every_image_once(seed: int, epoch: int, count: int) -> None:
    order = epoch_permutation(seed, epoch, count)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))


def test_order_is_repeatable_and_changes_with_seed_and_epoch() -> None:
    first = epoch_permutation(1, 2, 1000)
    np.testing.assert_array_equal(first, epoch_permutation(1, 2, 1000))
    for other in (epoch_permutation(1, 3, 1000), epoch_permutation(2, 2, 1000), np.arange(1000)):
        assert (first == other).mean() < 0.02


def test_order_is_the_same_with_every_release_of_numpy() -> None:
    assert epoch_permutation(0, 0, 10).tolist() == [8, 5, 6, 3, 4, 7, 9, 0, 1, 2]
