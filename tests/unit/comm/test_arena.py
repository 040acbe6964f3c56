"""Flat buffers and their views."""

from __future__ import annotations

import numpy as np

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ParameterSpec, plan_buckets


def make_arena() -> Arena:
    specs = [
        ParameterSpec("W", (5, 3, 2, 2), (2, 3, 1, 0)),
        ParameterSpec("b", (5,), (0,)),
        ParameterSpec("scalar", (), ()),
    ]
    return Arena(plan_buckets(specs, 1024))


def test_views_have_the_parameters_shapes_and_share_memory() -> None:
    arena = make_arena()
    assert arena.names == ("W", "b", "scalar")
    assert arena.parameter("W").shape == (5, 3, 2, 2)
    assert arena.parameter("scalar").shape == ()
    arena.gradient("b")[...] = 7
    assert arena.gradients.sum() == 35
    assert np.shares_memory(arena.parameter("W"), arena.parameters)


def test_memory_order_is_as_asked_for() -> None:
    """[kh][kw][C][K]: output channels lie next to each other."""
    arena = make_arena()
    view = arena.parameter("W")
    assert view.transpose(2, 3, 1, 0).flags.c_contiguous
    assert view.strides[0] == 4


def test_parameters_start_on_cache_lines() -> None:
    arena = make_arena()
    for name in arena.names:
        assert arena.parameter(name).ctypes.data % 64 == 0
        assert arena.gradient(name).ctypes.data % 64 == 0
