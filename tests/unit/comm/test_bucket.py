"""How gradients are cut into buckets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from edgeddl.comm.bucket import ALIGNMENT, ITEM_BYTES, ParameterSpec, Use, plan_buckets


def specs_of(counts: list[int]) -> list[ParameterSpec]:
    return [ParameterSpec(f"p{index}", (count,), (0,)) for index, count in enumerate(counts)]


@given(st.lists(st.integers(0, 5000), max_size=40), st.integers(1, 20_000))
def test_every_parameter_has_its_place(counts: list[int], bucket_bytes: int) -> None:
    plan = plan_buckets(specs_of(counts), bucket_bytes)
    assert [slot.spec.count for slot in plan.slots] == counts
    assert all(slot.start % ALIGNMENT == 0 for slot in plan.slots)
    # Buckets cover the buffer without gap or overlap.
    edges = [0, *(bucket.stop for bucket in plan.buckets)]
    assert [bucket.start for bucket in plan.buckets] == edges[:-1]
    assert edges[-1] == plan.length
    for bucket in plan.buckets:
        assert bucket.slots
        assert all(bucket.start <= slot.start <= slot.stop <= bucket.stop for slot in bucket.slots)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(64, 20_000))
def test_a_bucket_ends_with_the_parameter_that_fills_it(
    counts: list[int], bucket_bytes: int
) -> None:
    buckets = plan_buckets(specs_of(counts), bucket_bytes).buckets
    for bucket in buckets[:-1]:
        assert (bucket.slots[-1].start - bucket.start) * ITEM_BYTES < bucket_bytes + 64
    for bucket in buckets[:-2]:  # the last two share what is left
        assert (bucket.slots[-1].stop - bucket.start) * ITEM_BYTES >= bucket_bytes


def test_small_vectors_travel_with_the_weight_after_them() -> None:
    plan = plan_buckets(specs_of([16, 16, 5000, 16, 16, 5000, 100]), bucket_bytes=4096)
    assert [len(bucket.slots) for bucket in plan.buckets] == [3, 3, 1]


def test_the_last_bucket_is_small() -> None:
    plan = plan_buckets(specs_of([1024] * 16), bucket_bytes=4 * 4096)
    sizes = [len(bucket.slots) for bucket in plan.buckets]
    assert sizes == [4, 4, 4, 3, 1]


def test_no_parameters() -> None:
    plan = plan_buckets([], 1024)
    assert plan.length == 0
    assert plan.buckets == ()


def test_frozen_parameters_lie_behind_the_buckets() -> None:
    specs = specs_of([10, 20, 30, 40])
    specs[0] = replace(specs[0], use=Use.FROZEN)
    specs[2] = replace(specs[2], use=Use.FROZEN)
    plan = plan_buckets(specs, 64)
    trained = plan_buckets([specs[1], specs[3]], 64)
    assert plan.buckets == trained.buckets
    assert plan.trained_length == trained.length == 80
    assert [(slot.spec, slot.start) for slot in plan.frozen] == [(specs[0], 80), (specs[2], 96)]
    assert plan.length == 128 and plan.all_slots == plan.slots + plan.frozen
