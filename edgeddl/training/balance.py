"""Divides the images of a step among ranks by speed, so that fast boards do not wait for slow ones.

A rank is busy for about a + b * n seconds with n images: a for the update and Python, b for each
image. Shares in proportion to images per busy second neglect a, but repeated corrections converge
to equal busy times. Everything here is a pure function of what all ranks know, so all ranks compute
the same shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from edgeddl.data.sharding import split_by_speed
from edgeddl.errors import ConfigError
from edgeddl.table import counted

# A measured share is at most this many times the even one, because each image takes memory.
LARGEST_SHARE = 2
# Steps before a window that do not count. The first steps of a run include one-time work. After a
# change, the first step still has the old shares, and the second one waits for its images.
SETTLING_STEPS = 2
# Steps in a window: a first correction soon, then better measurements; the last size is small
# enough to follow boards that throttle.
FIRST_WINDOW, LAST_WINDOW = 4, 50
# The gain that justifies a change. Less may be noise, especially in the short measurement at the
# start.
LEAST_GAIN, LEAST_GAIN_AT_FIRST = 0.03, 0.1


def check_balance(balance: str | tuple[float, ...], ranks: int) -> None:
    """Raise unless there is one fixed speed for each rank."""
    if isinstance(balance, tuple) and len(balance) != ranks:
        raise ConfigError(
            f"--balance has {counted(len(balance), 'speed')} for {counted(ranks, 'rank')}",
            hint="give one speed for each rank, in order, or use --balance auto",
        )


def starting_shares(
    balance: str | tuple[float, ...], even_share: int, ranks: int, before: Sequence[int]
) -> list[int]:
    """Images of a whole step by rank, for `balance` as in TrainConfig.

    `before`: the shares in the checkpoint of a resumed run, which auto continues with.
    """
    if isinstance(balance, tuple):
        return split_by_speed(even_share * ranks, balance)
    if balance == "auto" and len(before) == ranks:
        return split_by_speed(even_share * ranks, before, LARGEST_SHARE * even_share)
    return [even_share] * ranks


def rebalanced(
    shares: Sequence[int], seconds: Sequence[float], least_gain: float = LEAST_GAIN
) -> list[int]:
    """Shares that would take equal time, given the time of these; the same if the gain is small."""
    speeds = [share / second for share, second in zip(shares, seconds, strict=True)]
    limit = LARGEST_SHARE * sum(shares) // len(shares)
    planned = split_by_speed(sum(shares), speeds, limit)
    expected = max(share / speed for share, speed in zip(planned, speeds, strict=True))
    return list(shares) if expected > (1 - least_gain) * max(seconds) else planned


class Balancer:
    """Follows the speed of the ranks; `shares` are the images of a whole step by rank."""

    def __init__(self, shares: Sequence[int]) -> None:
        self.shares = list(shares)
        self._window: list[Sequence[float]] = []
        self._window_steps = FIRST_WINDOW
        self._settling = SETTLING_STEPS

    def observe(self, busy_seconds: Sequence[float]) -> bool:
        """Add the busy times of a whole step by rank; returns whether the shares have changed."""
        if self._settling:
            self._settling -= 1
            return False
        self._window.append(busy_seconds)
        return len(self._window) == self._window_steps and self._decide()

    def _decide(self) -> bool:
        # The median ignores single steps that other processes have disturbed.
        seconds = [median(of_rank) for of_rank in zip(*self._window, strict=True)]
        self._window = []
        self._window_steps = min(2 * self._window_steps, LAST_WINDOW)
        planned = rebalanced(self.shares, seconds)
        if planned == self.shares:
            return False
        self.shares = planned
        self._settling = SETTLING_STEPS
        return True
