"""Every image belongs to exactly one rank."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeddl.data.sharding import epoch_permutation, split_by_speed, split_evenly

SPEEDS = st.lists(st.floats(0.01, 100), min_size=1, max_size=12)


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


@given(count=st.integers(0, 500), parts=st.integers(1, 30), speed=st.floats(1e-300, 1e300))
def test_equal_speeds_split_evenly(count: int, parts: int, speed: float) -> None:
    slices = [split_evenly(count, parts, index) for index in range(parts)]
    assert split_by_speed(count, [speed] * parts) == [stop - start for start, stop in slices]


@given(count=st.integers(0, 500), speeds=SPEEDS, spare=st.integers(0, 20))
def test_shares_keep_their_bounds(count: int, speeds: list[float], spare: int) -> None:
    limit = -(-count // len(speeds)) + spare
    shares = split_by_speed(count, speeds, limit)
    assert sum(shares) == count
    assert max(shares) <= limit
    assert min(shares) >= 1 or (max(shares) <= 1 and count < len(speeds))


@given(count=st.integers(0, 500), speeds=SPEEDS, spare=st.integers(0, 20))
def test_moving_an_image_does_not_finish_sooner(
    count: int, speeds: list[float], spare: int
) -> None:
    """The optimal split, in exact arithmetic, apart from the first image of each part."""
    limit = -(-count // len(speeds)) + spare
    shares = split_by_speed(count, speeds, limit)
    ends = [Fraction(share) / Fraction(speed) for share, speed in zip(shares, speeds, strict=True)]
    movable = [end for end, share in zip(ends, shares, strict=True) if share > 1]
    for share, speed in zip(shares, speeds, strict=True):
        if share < limit and movable:
            # A float may take for equal what is not.
            assert Fraction(share + 1) / Fraction(speed) >= max(movable) * (1 - Fraction(1, 2**50))


@given(count=st.integers(0, 300), speeds=SPEEDS)
def test_with_fewer_images_no_share_grows(count: int, speeds: list[float]) -> None:
    """So the buffers of a full step are large enough for the last step of an epoch."""
    more, less = split_by_speed(count + 1, speeds), split_by_speed(count, speeds)
    assert all(a <= b for a, b in zip(less, more, strict=True))


@given(shares=st.lists(st.integers(1, 100), min_size=1, max_size=12))
def test_shares_used_as_speeds_give_the_same_shares(shares: list[int]) -> None:
    assert split_by_speed(sum(shares), shares) == shares


@pytest.mark.parametrize(
    ("count", "speeds", "limit", "shares"),
    [
        (128, (1, 1, 1, 0.5), None, [37, 37, 36, 18]),
        (128, (1, 1, 1, 9), 64, [22, 21, 21, 64]),
        (4, (1, 1, 1, 9), None, [1, 1, 1, 1]),
        (2, (1, 2, 1, 9), None, [0, 1, 0, 1]),
        (0, (1, 2), None, [0, 0]),
        (5, (1e-320, 1e308), None, [1, 4]),
    ],
)
def test_shares(count: int, speeds: list[float], limit: int | None, shares: list[int]) -> None:
    assert split_by_speed(count, speeds, limit) == shares


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
