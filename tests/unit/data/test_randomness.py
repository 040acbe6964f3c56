"""Draws are a function of their key and counter, the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl.data.randomness import derive_key, draw_bits, draw_integers, draw_uniform


def test_bits_are_those_of_splitmix64() -> None:
    """The first outputs of Vigna's reference implementation with the seed 1234567."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert draw_bits(1234567, np.arange(5)).tolist() == expected


def test_a_draw_does_not_depend_on_other_draws() -> None:
    together = draw_bits(7, np.arange(100))
    assert draw_bits(7, np.array([42]))[0] == together[42]
    np.testing.assert_array_equal(draw_bits(7, np.arange(100)[::-1]), together[::-1])


def test_keys_differ_by_every_part_and_by_order() -> None:
    keys = {derive_key(*parts) for parts in [(), (0,), (0, 0), (0, 1), (1, 0), (1, 1), (-1,)]}
    assert len(keys) == 7


def test_streams_of_neighbouring_keys_are_unrelated() -> None:
    a, b = (draw_uniform(derive_key(seed), np.arange(10_000)) for seed in (1, 2))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.05  # five standard deviations


@pytest.mark.parametrize("bound", [1, 2, 9, 1000])
def test_integers_are_even_over_their_range(bound: int) -> None:
    count = 1000 * bound
    drawn = np.bincount(draw_integers(3, np.arange(count), bound), minlength=bound)
    assert len(drawn) == bound
    assert abs(drawn - 1000).max() < 6 * 1000**0.5


def test_uniform_numbers_fill_their_range() -> None:
    drawn = draw_uniform(3, np.arange(10_000), -2, 6)
    assert drawn.dtype == np.float32
    assert -2 <= drawn.min() < -1.9 and 5.9 < drawn.max() < 6
    assert abs(drawn.mean() - 2) < 0.15  # six standard deviations


def test_counters_keep_their_shape() -> None:
    counters = np.arange(6).reshape(2, 3)
    assert draw_bits(0, counters).shape == (2, 3)
    assert counters.tolist() == [[0, 1, 2], [3, 4, 5]]
