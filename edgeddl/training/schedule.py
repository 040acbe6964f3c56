"""Learning-rate schedules: pure functions of how far a run has come, in epochs.

Progress is `epoch + images of it already used / images in it`, not a count of steps. A run resumed
with another number of ranks takes other steps, but stays on the same curve.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import get_args

from edgeddl.config import ScalingRule, ScheduleKind
from edgeddl.errors import ConfigError

Schedule = Callable[[float], float]

# Where one-cycle peaks, and the part of the peak it begins at: the defaults of PyTorch's OneCycleLR
# and of fastai, from which most published one-cycle settings come.
ONE_CYCLE_PEAK_AT = 0.3
ONE_CYCLE_START_DIVISOR = 25.0


def scaled_learning_rate(base: float, ranks: int, accumulation: int, rule: ScalingRule) -> float:
    """The peak rate for all ranks, from the rate `base` that suits one rank's batch.

    "linear" follows Goyal et al. (arXiv:1706.02677): a batch k times as large takes k times the
    rate. Accumulated micro-batches enlarge the batch just as ranks do. "none" keeps `base`.
    """
    _require(_is_positive(base), f"the learning rate must be above 0, not {base}")
    _require(ranks >= 1, f"the number of ranks must be at least 1, not {ranks}")
    _require(accumulation >= 1, f"accumulation must be at least 1 micro-batch, not {accumulation}")
    _require_choice("learning-rate scaling", rule, get_args(ScalingRule))
    return base * ranks * accumulation if rule == "linear" else base


def plan_schedule(
    kind: ScheduleKind,
    *,
    peak: float,
    epochs: float,
    start: float,
    warmup_epochs: float = 0.0,
    step_at: tuple[float, ...] = (0.5, 0.75),
    step_factor: float = 0.1,
) -> Schedule:
    """The learning rate by progress in epochs, for a run of `epochs` (not necessarily whole).

    constant, cosine and step first rise linearly from `start` to `peak` over `warmup_epochs`. With
    `start` the rate before scaling this is the gradual warm-up of Goyal et al.: it bridges the
    jump that scaling makes, so one rank, where `start` equals `peak`, has none.

    constant   stays at the peak
    cosine     falls from the peak, at the end of the warm-up, to 0 at the end of the run
    step       is multiplied by `step_factor` at each of the fractions `step_at` of the run
    one-cycle  rises linearly from peak / 25 to the peak at 30 % of the run and falls linearly to 0;
               this is its own warm-up: `start` and `warmup_epochs` have no effect

    Before the start and after the end of the run, the rate is that of the start and the end.
    """
    _require_choice("schedule", kind, get_args(ScheduleKind))
    _check_run(peak, epochs)
    if kind == "one-cycle":
        return _within(epochs, _one_cycle(peak, epochs))
    _check_warmup(start, peak, warmup_epochs, epochs)
    if kind == "step":
        _check_steps(step_at, step_factor, warmup_epochs / epochs)
        after = _step(peak, epochs, step_at, step_factor)
    elif kind == "cosine":
        after = _cosine(peak, warmup_epochs, epochs)
    else:
        after = _constant(peak)
    return _within(epochs, _warmed_up(start, peak, warmup_epochs, after))


def _constant(peak: float) -> Schedule:
    return lambda progress: peak


def _cosine(peak: float, begin: float, end: float) -> Schedule:
    # If the whole run is warm-up, the length must not be 0.
    length = max(end - begin, math.ulp(end))
    return lambda progress: peak * 0.5 * (1.0 + math.cos(math.pi * (progress - begin) / length))


def _step(peak: float, epochs: float, step_at: tuple[float, ...], factor: float) -> Schedule:
    # progress / epochs rounds to the same number as the given fraction (7 of 10 epochs is 0.7).
    # fraction * epochs may be larger, and the drop one step late.
    return lambda progress: peak * factor ** bisect_right(step_at, progress / epochs)


def _one_cycle(peak: float, epochs: float) -> Schedule:
    top = ONE_CYCLE_PEAK_AT * epochs
    rise = _warmed_up(peak / ONE_CYCLE_START_DIVISOR, peak, top, _constant(peak))
    return lambda progress: (
        rise(progress) if progress < top else peak * (epochs - progress) / (epochs - top)
    )


def _warmed_up(start: float, peak: float, warmup: float, after: Schedule) -> Schedule:
    def learning_rate(progress: float) -> float:
        if progress < warmup:
            return start + (peak - start) * progress / warmup
        return after(progress)

    return learning_rate


def _within(epochs: float, schedule: Schedule) -> Schedule:
    return lambda progress: schedule(min(max(progress, 0.0), epochs))


def _check_run(peak: float, epochs: float) -> None:
    _require(_is_positive(peak), f"the peak learning rate must be above 0, not {peak}")
    _require(_is_positive(epochs), f"a schedule needs more than 0 epochs, not {epochs}")


def _check_warmup(start: float, peak: float, warmup: float, epochs: float) -> None:
    _require(0.0 <= warmup < math.inf, f"the warm-up must be 0 epochs or more, not {warmup}")
    _require(
        warmup <= epochs,
        f"a warm-up of {warmup:g} epochs does not fit into a run of {epochs:g}",
        hint="lower --warmup-epochs or train for longer",
    )
    _require(
        0.0 <= start <= peak,
        f"the warm-up must start between 0 and the peak {peak}, not at {start}",
    )


def _check_steps(step_at: tuple[float, ...], factor: float, warmup_fraction: float) -> None:
    _require(0.0 < factor <= 1.0, f"the step factor must be above 0 and at most 1, not {factor}")
    rising = all(earlier < later for earlier, later in pairwise(step_at))
    _require(
        rising and all(0.0 < fraction < 1.0 for fraction in step_at),
        f"steps must be rising fractions of the run between 0 and 1, not {step_at}",
        hint="0.5, 0.75 drops the learning rate at half and at three quarters of the run",
    )
    _require(
        not step_at or step_at[0] >= warmup_fraction,
        f"a step at {step_at} of the run falls into the warm-up, its first {warmup_fraction:.3g}",
        hint="step later, or lower --warmup-epochs",
    )


def _is_positive(value: float) -> bool:
    return 0.0 < value < math.inf


def _require_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    _require(value in choices, f"unknown {what} {value!r}: expected one of {', '.join(choices)}")


def _require(condition: bool, message: str, *, hint: str | None = None) -> None:
    if not condition:
        raise ConfigError(message, hint=hint)
