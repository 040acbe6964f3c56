"""Ranks get their shares of every step, for any number of ranks and after any resume."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeddl.data import NO_AUGMENTATION, Augmentation, ImageSet, StepBatch, TrainLoader, normalise
from edgeddl.data.sharding import epoch_permutation

MEAN = np.array([0.5, 0.4, 0.3], dtype=np.float32)
STD = np.array([0.25, 0.2, 0.1], dtype=np.float32)
AUGMENTATION = Augmentation(cutout=8)


def numbered_images(count: int) -> ImageSet:
    """Image i has the label i."""
    images = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return ImageSet(images, np.arange(count, dtype=np.int32))


IMAGES = numbered_images(101)


def make_loader(images: ImageSet = IMAGES, size: int = 1, **options: Any) -> TrainLoader:
    """Equal shares by default."""
    options = {"batch_size": 4, "augmentation": AUGMENTATION, **options}
    even_share = options["batch_size"] * options.get("accumulation", 1)
    return TrainLoader(images, MEAN, STD, **{"shares": [even_share] * size} | options)


def collect(step: StepBatch) -> tuple[np.ndarray, np.ndarray]:
    """Copies of a rank's arrays of a step."""
    x = [np.empty((0, 3, 32, 32), dtype=np.float32), *(x for x, _ in step.micro_batches)]
    t = [np.empty(0, dtype=np.int32), *(t for _, t in step.micro_batches)]
    return np.concatenate(x), np.concatenate(t)


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "edgeddl-loader"]


@settings(max_examples=50, deadline=None)
@given(
    count=st.integers(1, 40),
    size=st.integers(1, 6),
    batch_size=st.integers(1, 7),
    accumulation=st.integers(1, 3),
    fraction=st.floats(0, 1),
)
def test_every_image_exactly_once(
    count: int, size: int, batch_size: int, accumulation: int, fraction: float
) -> None:
    """From the resumed position to the end of the epoch, over all ranks, in order."""
    first_image = int(fraction * count)
    images = numbered_images(count)
    by_rank = []
    for rank in range(size):
        with make_loader(
            images, rank=rank, size=size, batch_size=batch_size, accumulation=accumulation
        ) as loader:
            by_rank.append([(s, *collect(s)) for s in loader.steps(3, first_image)])
    labels: list[int] = []
    for shares in zip(*by_rank, strict=True):
        step = shares[0][0]
        assert step.epoch == 3 and step.first_image == first_image + len(labels)
        assert all(other.images == step.images for other, _, _ in shares)
        assert step.images == min(
            batch_size * accumulation * size, count - first_image - len(labels)
        )
        for other, _, share in shares:
            assert all(len(t) <= batch_size for _, t in other.micro_batches)
            assert len(other.micro_batches) <= accumulation
            assert len(share) in (step.images // size, -(-step.images // size))
            labels.extend(share)
    assert labels == epoch_permutation(0, 3, count)[first_image:].tolist()


@settings(max_examples=50, deadline=None)
@given(
    count=st.integers(1, 40),
    plans=st.integers(1, 4).flatmap(
        lambda size: st.lists(
            st.lists(st.integers(1, 9), min_size=size, max_size=size), min_size=1, max_size=6
        )
    ),
    batch_size=st.integers(1, 7),
    accumulation=st.integers(1, 3),
)
def test_every_image_exactly_once_with_changing_shares(
    count: int, plans: list[list[int]], batch_size: int, accumulation: int
) -> None:
    """New shares after every step, over three epochs."""
    images = numbered_images(count)
    options = {"batch_size": batch_size, "accumulation": accumulation}
    loaders = [
        make_loader(images, rank=rank, shares=plans[0], **options) for rank in range(len(plans[0]))
    ]
    turn = 0
    for epoch in range(3):
        labels: list[int] = []
        for steps in zip(*(loader.steps(epoch) for loader in loaders), strict=True):
            plan, turn = plans[turn % len(plans)], turn + 1
            shares = [collect(step)[1] for step in steps]
            assert {step.first_image for step in steps} == {len(labels)}
            assert sum(map(len, shares)) == min(sum(plan), count - len(labels))
            assert all(len(share) <= most for share, most in zip(shares, plan, strict=True))
            assert all(len(step.micro_batches) <= accumulation for step in steps)
            labels.extend(np.concatenate(shares))
            for loader in loaders:
                loader.set_shares(plans[turn % len(plans)])
        assert labels == epoch_permutation(0, epoch, count).tolist()
    for loader in loaders:
        loader.close()


def test_a_step_stays_valid_when_shares_change() -> None:
    with make_loader(rank=1, shares=[2, 6]) as loader:
        steps = loader.steps(0)
        step = next(steps)
        before = collect(step)
        loader.set_shares([5, 3])
        threading.Event().wait(0.01)  # the thread prepares others meanwhile
        np.testing.assert_array_equal(collect(step)[0], before[0])
        expected = epoch_permutation(0, 0, 101)[13:16]
        np.testing.assert_array_equal(collect(next(steps))[1], expected)
        assert len(loader_threads()) == 1


@pytest.mark.parametrize(
    ("share", "sizes"),
    [(3, [3]), (4, [4]), (6, [3, 3]), (11, [4, 4, 3]), (12, [4, 4, 4]), (20, [7, 7, 6])],
)
def test_micro_batches_of_a_share(share: int, sizes: list[int]) -> None:
    """The fewest of at most batch_size, at most `accumulation` of them, of nearly equal size."""
    with make_loader(accumulation=3, shares=[share]) as loader:
        step = next(loader.steps(0))
        assert [len(t) for _, t in step.micro_batches] == sizes


def test_a_share_is_one_micro_batch_without_accumulation() -> None:
    with make_loader(batch_size=4, shares=[1, 11], rank=1) as loader:
        step = next(loader.steps(0))
        assert [len(t) for _, t in step.micro_batches] == [11]


@pytest.mark.parametrize("shares", [(4, 4), (4, 4, 4), (5, 2, 1, 9), (1, 19)])
def test_ranks_together_equal_one_rank(shares: tuple[int, ...]) -> None:
    """The same pixels, augmented the same way, bit for bit; 101 images do not divide."""
    with make_loader(batch_size=sum(shares)) as loader:
        alone = [collect(step) for step in loader.steps(0)]
    loaders = [make_loader(rank=rank, shares=shares) for rank in range(len(shares))]
    for (x, t), *steps in zip(alone, *(loader.steps(0) for loader in loaders), strict=True):
        shares = [collect(step) for step in steps]
        np.testing.assert_array_equal(np.concatenate([share for share, _ in shares]), x)
        np.testing.assert_array_equal(np.concatenate([share for _, share in shares]), t)
    for loader in loaders:
        loader.close()


def test_accumulation_equals_a_larger_batch() -> None:
    with make_loader(batch_size=12) as large, make_loader(accumulation=3) as small:
        for one, three in zip(large.steps(0), small.steps(0), strict=True):
            assert len(one.micro_batches) == 1
            np.testing.assert_array_equal(collect(one)[0], collect(three)[0])


def test_micro_batches_of_the_last_step() -> None:
    """101 = 6 * 16 + 5: the second of two ranks gets 2 images, the first 3."""
    with make_loader(rank=0, size=2, batch_size=2, accumulation=4) as loader:
        steps = [[len(t) for _, t in step.micro_batches] for step in loader.steps(0)]
    assert steps == [[2, 2, 2, 2]] * 6 + [[2, 1]]


def test_a_rank_without_images() -> None:
    with make_loader(numbered_images(2), rank=2, size=3) as loader:
        (step,) = loader.steps(0)
    assert step.images == 2
    assert step.micro_batches == []


def test_arrays() -> None:
    with make_loader(augmentation=NO_AUGMENTATION) as loader:
        for step in loader.steps(0):
            for x, t in step.micro_batches:
                assert x.dtype == np.float32 and t.dtype == np.int32
                assert x.transpose(0, 2, 3, 1).flags.c_contiguous
                np.testing.assert_array_equal(x, normalise(IMAGES.images[t], MEAN, STD))


def test_a_step_stays_valid_until_the_next_is_asked_for() -> None:
    """While the thread prepares the next ones."""
    with make_loader() as loader, make_loader() as other:
        steps = loader.steps(0)
        ahead = [collect(step) for step in other.steps(0)]
        for expected in ahead:
            step = next(steps)
            threading.Event().wait(0.002)
            np.testing.assert_array_equal(collect(step)[0], expected[0])


def test_a_resumed_epoch_has_the_same_steps() -> None:
    with make_loader() as loader:
        whole = [collect(step) for step in loader.steps(1)]
    with make_loader() as loader:
        resumed = [collect(step) for step in loader.steps(1, first_image=40)]
    assert len(resumed) == len(whole) - 10
    for (x, t), (expected_x, expected_t) in zip(resumed, whole[10:], strict=True):
        np.testing.assert_array_equal(x, expected_x)
        np.testing.assert_array_equal(t, expected_t)


def test_epochs_follow_each_other_in_one_thread() -> None:
    with make_loader() as loader:
        list(loader.steps(0))
        (thread,) = loader_threads()
        second = np.concatenate([collect(step)[1] for step in loader.steps(1)])
        assert loader_threads() == [thread]
    np.testing.assert_array_equal(second, epoch_permutation(0, 1, 101))


def test_epochs_in_any_order() -> None:
    with make_loader() as loader:
        for epoch in (2, 0, 0, 7):
            labels = np.concatenate([collect(step)[1] for step in loader.steps(epoch)])
            np.testing.assert_array_equal(labels, epoch_permutation(0, epoch, 101))
        assert len(loader_threads()) == 1


def test_an_interrupted_iteration_can_be_resumed() -> None:
    with make_loader() as loader:
        for step in loader.steps(0):
            if step.first_image == 20:
                break
        labels = np.concatenate([collect(step)[1] for step in loader.steps(0, 24)])
    np.testing.assert_array_equal(labels, epoch_permutation(0, 0, 101)[24:])


def test_nothing_left_of_an_epoch() -> None:
    with make_loader() as loader:
        assert list(loader.steps(0, first_image=101)) == []
        assert loader_threads() == []


def test_closing_midway_leaves_no_thread() -> None:
    with make_loader() as loader:
        next(loader.steps(0))
        assert len(loader_threads()) == 1
    assert loader_threads() == []
    loader.close()


def test_an_iteration_ends_with_its_loader() -> None:
    loader = make_loader()
    steps = loader.steps(0)
    next(steps)
    loader.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(steps)


def test_one_iteration_at_a_time() -> None:
    with make_loader() as loader:
        first = loader.steps(0)
        next(first)
        next(loader.steps(1))
        with pytest.raises(RuntimeError, match="another iteration"):
            next(first)


def test_an_error_of_the_thread_is_raised() -> None:
    """Labels without images."""
    images = ImageSet(IMAGES.images[:50], IMAGES.labels)
    with make_loader(images) as loader:
        with pytest.raises(IndexError, match="out of bounds"):
            list(loader.steps(0))
        assert loader_threads() == []
