"""Gradients that arrive during the next forward pass: the run is the same run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from edgeddl.chainer_compat import chainer
from edgeddl.comm.bucket import Bucket
from edgeddl.comm.bucketed import CHANNELS, BucketedExchange
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.policies import Policy, find_policy
from edgeddl.comm.policies.full import FullPrecision
from edgeddl.errors import DivergenceError
from edgeddl.registry import POLICIES
from edgeddl.training.checkpoint import CheckpointStore
from edgeddl.training.clock import StepClock
from edgeddl.training.updater import Updater
from tests.unit.training.training_runs import train

OPTIONS: dict[str, Any] = {"model": "resnet9", "limit_train": 20, "limit_test": 10, "batch_size": 4}


@pytest.fixture
def slow_first_bucket(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Sums of the bucket that may be late take so long that the next step has begun by then."""
    ended: list[float] = []

    def slowed(sum_bucket: Callable[..., int]) -> Callable[..., int]:
        def slowly(
            self: Policy, communicator: Communicator, bucket: Bucket, gradients: np.ndarray
        ) -> int:
            if bucket.start == 0:
                time.sleep(0.1)
            sent = sum_bucket(self, communicator, bucket, gradients)
            if bucket.start == 0:
                ended.append(time.perf_counter())
            return sent

        return slowly

    for kind in map(find_policy, POLICIES):
        monkeypatch.setattr(kind, "sum", slowed(kind.sum))
    return ended


@pytest.fixture
def late_buckets(monkeypatch: pytest.MonkeyPatch) -> list[Bucket | None]:
    """The late bucket of each rank's exchange."""
    chosen: list[Bucket | None] = []
    open_exchange = BucketedExchange.open

    def noting(self: BucketedExchange) -> None:
        chosen.append(self._late)
        open_exchange(self)

    monkeypatch.setattr(BucketedExchange, "open", noting)
    return chosen


def last_parameters(run_dir: Path) -> np.ndarray:
    found = CheckpointStore(run_dir / "checkpoints", 9).latest()
    assert found is not None
    arrays = found[1].arrays
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint_every": 1},
        {"accumulation": 2},
        {"balance": (0.1, 9.0)},  # a rank has no images in some steps
        {"compression": "fp16"},
        {"compression": "powersgd", "bucket_mib": 12},
    ],
    ids=lambda options: next(iter(options)),
)
def test_late_gradients_make_the_same_run_bit_for_bit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slow_first_bucket: list[float],
    late_buckets: list[Bucket | None],
    options: dict[str, Any],
) -> None:
    late = train(tmp_path / "late", 2, **OPTIONS | options)
    assert [bucket and bucket.start for bucket in late_buckets] == [0, 0]  # which is slow
    monkeypatch.setattr(BucketedExchange, "_choose_late", lambda self: None)
    prompt = train(tmp_path / "prompt", 2, **OPTIONS | options)
    assert slow_first_bucket
    assert late["step_losses"] == prompt["step_losses"]
    assert late["final_accuracy"] == prompt["final_accuracy"]
    np.testing.assert_array_equal(
        last_parameters(tmp_path / "late"), last_parameters(tmp_path / "prompt")
    )


def test_a_step_ends_before_its_late_gradients_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_first_bucket: list[float]
) -> None:
    ends: list[float] = []
    step = Updater.step

    def noting(self: Updater, *arguments: Any) -> Any:
        result = step(self, *arguments)
        ends.append(time.perf_counter())
        return result

    monkeypatch.setattr(Updater, "step", noting)
    train(tmp_path, 2, **OPTIONS | {"epochs": 1})
    assert CHANNELS * len(ends) == len(slow_first_bucket)  # in two halves
    assert ends[0] < slow_first_bucket[0]


@pytest.mark.parametrize(
    "options",
    [{"model": "tests.models:TinyNet"}, {"communicator": "naive"}, {"local_steps": 2}],
    ids=lambda options: next(iter(options)),
)
def test_no_bucket_is_late_if_no_barrier_would_wait_for_it(
    tmp_path: Path, late_buckets: list[Bucket | None], options: dict[str, Any]
) -> None:
    train(tmp_path, 2, **OPTIONS | {"epochs": 1} | options)
    assert late_buckets == ([] if options.get("communicator") == "naive" else [None, None])


def test_a_timeline_has_the_late_gradients_of_all_its_steps(
    tmp_path: Path, slow_first_bucket: list[float]
) -> None:
    path = tmp_path / "timeline.json"
    options = {"timeline": path, "timeline_steps": 2, "limit_train": 40}
    train(tmp_path / "run", 2, **OPTIONS | options)
    spans = json.loads(path.read_text())["traceEvents"]
    late = [span for span in spans if span["name"].startswith("all-reduce head")]
    steps = [span for span in spans if span["name"].startswith("step ")]
    assert len(steps) == 2 * 2 and len(late) == CHANNELS * len(steps)


def test_a_run_that_diverges_waits_for_what_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a rank would end while others still send to it."""
    under_way: list[bool] = []

    def very_slowly(
        self: FullPrecision, communicator: Communicator, bucket: Bucket, gradients: np.ndarray
    ) -> int:
        if bucket.start == 0:
            under_way.append(True)
            time.sleep(1)
            under_way.pop()
        return 0

    monkeypatch.setattr(FullPrecision, "sum", very_slowly)
    with pytest.raises(DivergenceError):
        train(tmp_path, 2, **OPTIONS | {"lr": 1e30})
    assert not under_way


def test_a_pending_update_is_finished_once() -> None:
    class LateExchange(Mock):
        late_parameters = ("W",)
        late_ranges = Mock(return_value=[(2, 5)])

    model, exchange, optimizer = chainer.Link(), LateExchange(), Mock()
    with model.init_scope():
        model.W = chainer.Parameter(np.zeros(1, np.float32))
    updater, clock = Updater(model, exchange, optimizer), StepClock()
    updater.finish_pending_update(clock)
    optimizer.update.assert_not_called()
    updater._pending_rate = 0.1
    updater.finish_pending_update(clock)
    updater.finish_pending_update()
    optimizer.update.assert_called_once_with(0.1, 2, 5)


def test_a_phase_within_another_counts_for_itself() -> None:
    clock = StepClock()
    with clock.phase("forward"):
        time.sleep(0.01)
        with clock.phase("allreduce_wait"):
            time.sleep(0.05)
        with clock.phase("update"):
            time.sleep(0.02)
    seconds = clock.phase_seconds
    assert seconds["allreduce_wait"] >= 0.05
    assert seconds["update"] >= 0.02
    assert sum(seconds.values()) <= clock.elapsed()
    assert seconds["forward"] >= 0.01
