"""Shares follow the speed of the ranks, in a simulated cluster and in runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError, EdgeddlError
from edgeddl.training.balance import LAST_WINDOW, Balancer, rebalanced, starting_shares
from edgeddl.training.checkpoint import CheckpointStore
from edgeddl.training.clock import StepClock
from edgeddl.training.extensions.balancing import Balancing
from edgeddl.training.loop import StepReport
from edgeddl.training.state import RunState
from edgeddl.training.telemetry import RankStep, Vitals
from tests.unit.training.training_runs import OPTIONS, train

FIRST_DECISION = 2 + 4  # steps that settle, and a window


class Cluster:
    """Ranks that are busy for fixed + per_image * n seconds with n images, less or more a noise."""

    def __init__(self, fixed: list[float], per_image: list[float], noise: float = 0.0) -> None:
        self.fixed, self.per_image = np.array(fixed), np.array(per_image)
        self._noise = noise
        self._rng = np.random.default_rng(0)

    def seconds(self, shares: list[int]) -> np.ndarray:
        return self.fixed + self.per_image * np.array(shares)

    def run(self, balancer: Balancer, steps: int) -> list[list[int]]:
        """The shares of each change."""
        changes = []
        for _ in range(steps):
            noise = self._rng.normal(1, self._noise, len(self.fixed))
            if balancer.observe((self.seconds(balancer.shares) * noise).tolist()):
                changes.append(balancer.shares)
        return changes

    def ideal_seconds(self, images: int, limit: int) -> float:
        """One image after another to the rank that is done with it first."""
        shares = [1] * len(self.fixed)
        for _ in range(images - len(shares)):
            ends = self.seconds([share + 1 for share in shares])
            shares[int(np.where(np.array(shares) < limit, ends, np.inf).argmin())] += 1
        return self.seconds(shares).max()


CLUSTERS = {
    "one at half speed": ([0.1] * 4, [0.1, 0.1, 0.1, 0.2]),
    "one at a quarter": ([0.1] * 4, [0.1, 0.1, 0.1, 0.4]),
    "all different": ([0.05, 0.3, 0.1, 0.6, 0.2], [0.1, 0.12, 0.15, 0.2, 0.25]),
    "large fixed part": ([1.0, 1.0], [0.05, 0.15]),
    "one beyond the limit": ([0.0] * 4, [0.01, 0.1, 0.1, 0.1]),
    "two": ([0.02, 0.02], [0.1, 0.2]),
}


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("name", CLUSTERS)
def test_shares_come_close_to_the_ideal_and_stay(name: str, noise: float) -> None:
    """95 % of the ideal after three windows; then at most an adjustment now and then."""
    cluster = Cluster(*CLUSTERS[name], noise)
    balancer = Balancer([32] * len(cluster.fixed))
    cluster.run(balancer, 2 + 4 + 2 + 8 + 2 + 16)
    ideal = cluster.ideal_seconds(sum(balancer.shares), limit=64)
    assert ideal / cluster.seconds(balancer.shares).max() >= 0.95
    before = np.array(balancer.shares)
    later = cluster.run(balancer, 20 * LAST_WINDOW)
    assert len(later) <= 2
    assert ideal / cluster.seconds(balancer.shares).max() >= 0.95
    assert np.abs(np.array(balancer.shares) - before).max() <= 3
    assert sum(balancer.shares) == before.sum() and max(balancer.shares) <= 64


@pytest.mark.parametrize("even_share", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(50))
def test_shares_of_few_images_do_not_swing(even_share: int, seed: int) -> None:
    """Where one image more or less matters, and where fixed parts are as large as the rest."""
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 7))
    cluster = Cluster(rng.uniform(0, 1, ranks).tolist(), rng.uniform(0.1, 1, ranks).tolist())
    balancer = Balancer([even_share] * ranks)
    changes = [tuple(shares) for shares in cluster.run(balancer, 40 * LAST_WINDOW)]
    assert len(set(changes)) == len(changes)
    assert cluster.run(balancer, 10 * LAST_WINDOW) == []


def test_equal_ranks_stay_even_in_noise() -> None:
    """A deviation of 5 % from step to step is more than boards show."""
    balancer = Balancer([32] * 4)
    Cluster([0.1] * 4, [0.1] * 4, noise=0.05).run(balancer, 1000)
    assert max(balancer.shares) - min(balancer.shares) <= 3


def test_a_board_that_throttles_later_is_noticed() -> None:
    balancer = Balancer([32] * 4)
    even = Cluster([0.1] * 4, [0.1] * 4)
    assert even.run(balancer, 500) == []
    throttled = Cluster([0.1] * 4, [0.1, 0.1, 0.2, 0.1])
    throttled.run(balancer, 4 * LAST_WINDOW)
    assert balancer.shares[2] < 20
    even.run(balancer, 4 * LAST_WINDOW)
    assert max(balancer.shares) - min(balancer.shares) <= 2


def test_a_disturbed_step_changes_nothing() -> None:
    balancer = Balancer([8, 8])
    steps = [(1.0, 1.0)] * FIRST_DECISION
    steps[3] = (1.0, 100.0)
    assert not any(balancer.observe(seconds) for seconds in steps)


def test_windows_grow_and_leave_out_two_steps() -> None:
    """Another rank is slow after each change, so that every window ends with one."""
    balancer = Balancer([8, 8])
    changes: list[int] = []
    for step in range(1, 200):
        if balancer.observe((1.0, 3.0) if len(changes) % 2 else (3.0, 1.0)):
            changes.append(step)
    windows = np.diff([0, *changes])
    assert windows.tolist() == [2 + 4, 2 + 8, 2 + 16, 2 + 32, 2 + 50, 2 + 50]


@pytest.mark.parametrize(("last_step", "changed"), [(4, False), (16, True)])
def test_the_last_step_of_an_epoch_is_no_measure(last_step: int, changed: bool) -> None:
    """Epochs of two steps; each report tells the times of the step before it."""
    changes: list[Sequence[int]] = []
    loader = SimpleNamespace(set_shares=changes.append)
    balancing = Balancing(Balancer([8, 8]), loader, logs=False)  # type: ignore[arg-type]
    for _ in range(30):
        for images, before in ((16, (1.0, 9.0)), (last_step, (1.0, 1.0))):
            ranks = tuple(RankStep(seconds=seconds) for seconds in before)
            balancing.on_step(StepReport(RunState(), 0.0, images, 1.0, {}, ranks, 0.1, 8))
    assert bool(changes) == changed


def test_a_gain_that_may_be_noise_changes_nothing() -> None:
    """100 images each, one 4 % slower: 2 images moved would save 2 %."""
    balancer = Balancer([100, 100])
    assert Cluster([0, 0], [1.0, 1.04]).run(balancer, 500) == []
    assert Cluster([0, 0], [1.0, 1.1]).run(balancer, 500) == [[105, 95]]


@pytest.mark.parametrize(
    ("seconds", "shares"),
    [
        ([1.0, 1.0, 1.0], [8, 8, 8]),
        ([1.0, 3.0, 1.0], [11, 3, 10]),
        ([1.0, 1.02, 1.0], [8, 8, 8]),
        ([1.0, 1.2, 1.0], [9, 7, 8]),
        ([0.1, 1.0, 1.0], [16, 4, 4]),  # no more than twice the even share
    ],
)
def test_rebalanced(seconds: list[float], shares: list[int]) -> None:
    assert rebalanced([8, 8, 8], seconds) == shares


def test_what_gains_too_little_changes_nothing() -> None:
    """9 7 8 would take 1.125, where 8 8 8 take 1.2: 6 % less."""
    assert rebalanced([8, 8, 8], [1.0, 1.2, 1.0], least_gain=0.1) == [8, 8, 8]
    assert rebalanced([8, 8, 8], [1.0, 1.2, 1.0], least_gain=0.05) == [9, 7, 8]


@pytest.mark.parametrize(
    ("balance", "before", "shares"),
    [
        ("even", [], [8, 8, 8]),
        ("even", [10, 10, 4], [8, 8, 8]),
        ("auto", [], [8, 8, 8]),
        ("auto", [10, 10, 4], [10, 10, 4]),
        ("auto", [20, 20, 8], [10, 10, 4]),  # another batch size than before
        ("auto", [22, 1, 1], [16, 4, 4]),  # fixed before, and more than auto gives
        ("auto", [12, 12], [8, 8, 8]),  # other ranks
        ((1.0, 1.0, 0.4), [8, 8, 8], [10, 10, 4]),
        ((1.0, 22.0, 1.0), [], [1, 22, 1]),
    ],
)
def test_starting_shares(balance: Any, before: list[int], shares: list[int]) -> None:
    assert starting_shares(balance, 8, 3, before) == shares


def test_speeds_must_be_as_many_as_ranks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 speeds for 3 ranks"):
        train(tmp_path, 3, balance=(1.0, 2.0))
    assert not list(tmp_path.iterdir())


def test_auto_on_one_rank_is_even(tmp_path: Path) -> None:
    summary = train(tmp_path, balance="auto", epochs=3)
    assert [rank["batch_share"] for rank in summary["ranks"]] == [8]


@pytest.fixture
def slow_rank_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that tell what images would take: 1 s each, and 2.5 s on rank 1."""

    def of(clock: StepClock, images: int, vitals: Vitals) -> RankStep:
        slowness = 2.5 if threading.current_thread().name == "rank-1" else 1.0
        return RankStep(seconds=images * slowness)

    monkeypatch.setattr(RankStep, "of", staticmethod(of))


AUTO: dict[str, Any] = {"balance": "auto", "lr_scaling": "none", "epochs": 4}


@pytest.mark.usefixtures("slow_rank_1")
def test_a_slow_rank_gets_less(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And the run is that of one rank, whatever its shares were: no image is lost or repeated."""
    with caplog.at_level(logging.INFO, "edgeddl"):
        shared = train(tmp_path / "auto", 3, batch_size=4, **AUTO)
    assert [rank["batch_share"] for rank in shared["ranks"]] == [5, 2, 5]
    assert caplog.text.count("balance: 5 2 5 images per step") == 1
    alone = train(tmp_path / "one", 1, batch_size=12, lr_scaling="none", epochs=4)
    np.testing.assert_allclose(shared["step_losses"], alone["step_losses"], rtol=1e-5)
    assert shared["images"] == alone["images"] == 240


@pytest.mark.usefixtures("slow_rank_1")
def test_a_resumed_run_goes_on_with_its_shares(tmp_path: Path) -> None:
    """The clocks of this test are exact, so that the course is the same as without a stop."""
    options = AUTO | {"batch_size": 4, "model": "tests.models:TinyNormalisedNet"}
    straight = train(tmp_path / "straight", 3, **options)
    train(tmp_path / "run", 3, **options | {"max_steps": 9})
    assert shares_saved(tmp_path / "run") == [5, 2, 5]
    resumed = train(tmp_path / "run", 3, resume="auto", **options)
    assert resumed["step_losses"] == straight["step_losses"]
    other = train(tmp_path / "run", 2, resume="auto", **options | {"epochs": 5, "max_steps": 22})
    assert [rank["batch_share"] for rank in other["ranks"]] == [4, 4]


@pytest.mark.parametrize("shares", [None, 3, ["8"], [0, 16], [8.0, 8.0], [True, 15]])
def test_nonsense_for_shares_is_refused(tmp_path: Path, shares: Any) -> None:
    train(tmp_path, 2, max_steps=2)
    rewrite_shares(tmp_path, shares)
    with pytest.raises(EdgeddlError, match=r"checkpoint-00000002\.npz"):
        train(tmp_path, 2, resume="auto", balance="auto")


def test_a_checkpoint_without_shares_is_taken_as_even(tmp_path: Path) -> None:
    straight = train(tmp_path / "straight", 2)
    train(tmp_path / "run", 2, max_steps=2)
    rewrite_shares(tmp_path / "run", ...)
    assert train(tmp_path / "run", 2, resume="auto")["step_losses"] == straight["step_losses"]


def test_the_default_is_even() -> None:
    assert TrainConfig(**OPTIONS).balance == "even"


def shares_saved(run_dir: Path) -> list[int]:
    found = CheckpointStore(run_dir / "checkpoints", keep=3).latest()
    assert found is not None
    return found[1].meta["state"]["shares"]


def rewrite_shares(run_dir: Path, shares: Any) -> None:
    """Put others into the latest checkpoint; `...` takes them out."""
    store = CheckpointStore(run_dir / "checkpoints", keep=3)
    found = store.latest()
    assert found is not None
    state = found[1].meta["state"]
    del state["shares"]
    if shares is not ...:
        state["shares"] = shares
    store.save(state["step"], found[1])
