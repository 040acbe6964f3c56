"""Learning rates at the corners of every schedule, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeddl.errors import ConfigError
from edgeddl.training.schedule import plan_schedule, scaled_learning_rate

KINDS = ("constant", "cosine", "step", "one-cycle")


def plan(kind: Any, **changes: Any) -> Any:
    settings = {"peak": 0.4, "start": 0.1, "epochs": 20.0, "warmup_epochs": 4.0, **changes}
    return plan_schedule(kind, **settings)


@pytest.mark.parametrize("kind", ["constant", "cosine", "step"])
def test_warm_up_is_a_line_from_start_to_peak(kind: str) -> None:
    rate = plan(kind)
    assert [rate(p) for p in (0, 1, 2, 3)] == pytest.approx([0.1, 0.175, 0.25, 0.325])
    assert rate(4) == 0.4


def test_no_warm_up_begins_at_the_peak() -> None:
    assert plan("cosine", warmup_epochs=0)(0) == 0.4


def test_constant_stays_at_the_peak() -> None:
    rate = plan("constant")
    assert {rate(p) for p in (4, 7.3, 20)} == {0.4}


def test_cosine_falls_from_the_end_of_the_warm_up_to_zero() -> None:
    rate = plan("cosine")
    assert rate(8) == pytest.approx(0.4 * (1 + math.cos(math.pi / 4)) / 2)
    assert rate(12) == pytest.approx(0.2)
    assert rate(20) == pytest.approx(0, abs=1e-15)


def test_step_drops_exactly_at_its_fractions() -> None:
    rate = plan("step", step_at=(0.5, 0.75), step_factor=0.5)
    assert [rate(p) for p in (9.999, 10, 14.999, 15, 20)] == [0.4, 0.2, 0.2, 0.1, 0.1]


@pytest.mark.parametrize("epoch", range(1, 100))
def test_step_at_an_epoch_is_not_late_by_rounding(epoch: int) -> None:
    rate = plan("step", epochs=100, warmup_epochs=0, step_at=(epoch / 100,))
    assert rate(epoch) == pytest.approx(0.04)
    assert rate(math.nextafter(epoch, 0) - 1e-9) == 0.4


def test_one_cycle_has_its_own_warm_up() -> None:
    rate = plan("one-cycle", start=0.3, warmup_epochs=19)
    assert rate(0) == pytest.approx(0.4 / 25)
    assert rate(3) == pytest.approx((0.4 / 25 + 0.4) / 2)
    assert rate(6) == pytest.approx(0.4)
    assert rate(13) == pytest.approx(0.2)
    assert rate(20) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_outside_the_run_the_rate_is_that_of_its_ends(kind: str) -> None:
    rate = plan(kind)
    assert rate(-1) == rate(0)
    assert rate(25) == rate(20)


@given(
    kind=st.sampled_from(KINDS),
    epochs=st.floats(0.01, 500),
    warmup=st.floats(0, 1),
    progress=st.floats(0, 1),
)
def test_the_rate_is_never_negative_nor_above_the_peak(
    kind: str, epochs: float, warmup: float, progress: float
) -> None:
    rate = plan(kind, epochs=epochs, warmup_epochs=warmup * epochs, step_at=())
    assert 0 <= rate(progress * epochs) <= 0.4 * (1 + 1e-12)


@given(kind=st.sampled_from(("constant", "cosine", "one-cycle")), progress=st.floats(0, 19.9))
def test_smooth_schedules_do_not_jump(kind: str, progress: float) -> None:
    rate = plan(kind)
    assert abs(rate(progress + 1e-6) - rate(progress)) < 1e-6


@pytest.mark.parametrize("kind", ["constant", "cosine", "step"])
def test_a_run_may_be_all_warm_up(kind: str) -> None:
    rate = plan(kind, warmup_epochs=20, step_at=())
    assert rate(10) == pytest.approx(0.25)
    assert rate(20) == 0.4


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("cosine", {"warmup_epochs": 20.5}, "does not fit into a run of 20"),
        ("cosine", {"warmup_epochs": -1}, "warm-up must be 0 epochs or more"),
        ("cosine", {"warmup_epochs": math.nan}, "warm-up must be 0 epochs or more"),
        ("cosine", {"peak": 0}, "peak learning rate must be above 0"),
        ("one-cycle", {"peak": -0.1}, "peak learning rate must be above 0"),
        ("constant", {"peak": math.inf}, "peak learning rate must be above 0"),
        ("constant", {"epochs": 0}, "more than 0 epochs"),
        ("constant", {"start": 0.5}, "start between 0 and the peak"),
        ("constant", {"start": math.nan}, "start between 0 and the peak"),
        ("step", {"step_at": (0.75, 0.5)}, "rising fractions"),
        ("step", {"step_at": (0.5, 0.5)}, "rising fractions"),
        ("step", {"step_at": (0.5, 1.0)}, "rising fractions"),
        ("step", {"step_at": (10, 15)}, "rising fractions"),
        ("step", {"step_at": (0.1, 0.5)}, "falls into the warm-up"),
        ("step", {"step_factor": 0}, "step factor"),
        ("exponential", {}, "unknown schedule 'exponential'.*constant, cosine, step, one-cycle"),
    ],
)
def test_settings_that_make_no_schedule(kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(kind, **changes)


def test_linear_scaling_counts_ranks_and_accumulation() -> None:
    assert scaled_learning_rate(0.05, 4, 2, "linear") == 0.4
    assert scaled_learning_rate(0.05, 4, 2, "none") == 0.05
    assert scaled_learning_rate(0.05, 1, 1, "linear") == 0.05


@pytest.mark.parametrize(
    "arguments",
    [(0, 1, 1, "linear"), (0.1, 0, 1, "none"), (0.1, 1, 0, "none"), (0.1, 1, 1, "root")],
)
def test_scaling_refuses_what_makes_no_rate(arguments: Any) -> None:
    with pytest.raises(ConfigError):
        scaled_learning_rate(*arguments)
