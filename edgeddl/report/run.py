"""A run as its folder tells it: finished, going on, killed or taken up again."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

from edgeddl.errors import ConfigError

FORMAT = 1
# The first steps after a start pay for what is done once; means leave them out.
WARM_UP_STEPS = 2
Json = dict[str, Any]
# Beyond these a file is damaged, whatever it says.
LARGEST, END_OF_TIME = 1e18, 1e11
PHASES = ("data", "forward", "backward", "allreduce_wait", "update")
NUMBERS = ("seconds", *PHASES, "images")
# Of the summary, by which a run's end tells how it was
END_FIGURES = ("images_per_second", "scaling_efficiency")
END_RANK_FIGURES = ("images_per_second", "peak_memory_bytes")
VITALS = ("memory_bytes", "temperature_celsius", "clock_hertz", "throttling")


@dataclass(frozen=True)
class Steps:
    """Consecutive steps, the last of which is `step`.

    elapsed: seconds of the run at its end, without the time between two starts
    ranks: sums over the `told` first of these steps, memory and sensors as at the last
    """

    step: int
    losses: list[float]
    learning_rate: float
    elapsed: float
    warm_up: bool
    told: int
    ranks: list[Json]

    @property
    def first_step(self) -> int:
        return self.step - len(self.losses) + 1

    @property
    def seconds(self) -> float:
        """Of the slowest rank."""
        return max((rank["seconds"] for rank in self.ranks), default=0.0)

    @property
    def images(self) -> int:
        return sum(rank["images"] for rank in self.ranks)


def thinned(parts: Sequence[Steps], most: int = 400) -> list[Steps]:
    """About so many at most: neighbours are joined, as if their lines had been one."""
    size = len(parts) // most + 1
    return [
        _join(same[first : first + size])
        for same in by_ranks(parts)
        for first in range(0, len(same), size)
    ]


def by_ranks(parts: Iterable[Steps]) -> list[list[Steps]]:
    """Consecutive steps of the same number of ranks: a run may be resumed with another number."""
    return [list(same) for _, same in groupby(parts, key=lambda steps: len(steps.ranks))]


def _join(parts: Sequence[Steps]) -> Steps:
    ranks = [_join_rank(rank) for rank in zip(*(steps.ranks for steps in parts), strict=True)]
    losses = [loss for steps in parts for loss in steps.losses]
    told = sum(steps.told for steps in parts)
    return replace(parts[-1], losses=losses, told=told, ranks=ranks)


def _join_rank(parts: Sequence[Json]) -> Json:
    bits = [int(part["throttling"]) for part in parts if part["throttling"] is not None]
    sums = {name: sum(part[name] for part in parts) for name in NUMBERS}
    return parts[-1] | sums | {"throttling": reduce(operator.or_, bits) if bits else None}


@dataclass
class Run:
    """What was recorded. Of steps that were done twice, the second time."""

    path: Path
    name: str
    starts: list[Json] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    epochs: list[Json] = field(default_factory=list)
    end: Json | None = None
    last_time: float = 0.0
    damaged_lines: int = 0

    @property
    def options(self) -> Json:
        return self.starts[-1]["options"]

    @property
    def ranks(self) -> list[Json]:
        """Host, cpu and threads of each, as in the last start that had so many ranks."""
        most = max(len(start["ranks"]) for start in self.starts)
        last = [start["ranks"] for start in self.starts]
        return [next(r[n] for r in reversed(last) if n < len(r)) for n in range(most)]

    @property
    def rank_counts(self) -> list[tuple[int, int]]:
        """The numbers of ranks one after another, each with the step after which it holds."""
        steps = [(start["step"], len(start["ranks"])) for start in self.starts]
        # A start from an earlier step takes the place of those that began later.
        valid = [s for i, s in enumerate(steps) if all(s[0] < later for later, _ in steps[i + 1 :])]
        return [next(same) for _, same in groupby(valid, key=lambda pair: pair[1])]

    @property
    def measured(self) -> list[Steps]:
        """Without warming up, unless there is nothing else."""
        told = [steps for steps in self.steps if steps.seconds > 0]
        return [steps for steps in told if not steps.warm_up] or told

    @property
    def evaluations(self) -> list[Json]:
        """Step and accuracy of each: after epochs, and where --max-steps has ended the run.

        The latter does not count once the run continues, as in its state (training/state.py).
        """
        found = [epoch for epoch in self.epochs if epoch["accuracy"] is not None]
        last = self.steps[-1].step if self.steps else 0
        # For a run that a signal has stopped, this is that of the last epoch again.
        at_end = self.end["final_accuracy"] if self.end and self.status == "finished" else None
        if at_end is not None and not (found and found[-1]["step"] == last):
            found.append({"step": last, "accuracy": at_end})
        return [{"step": one["step"], "accuracy": one["accuracy"]} for one in found]

    @property
    def status(self) -> str:
        """finished, stopped, failed; open: it goes on, or was killed."""
        return self.end["outcome"] if self.end else "open"


def read_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs in these folders, under names that tell them apart."""
    folders = [Path(os.path.abspath(path)) for path in paths]
    doubled = {path for path in folders if folders.count(path) > 1}
    if doubled:
        raise ConfigError(f"the run {doubled.pop()} is given twice")
    names = [path.name for path in folders]
    return [
        read_run(path, path.name if names.count(path.name) == 1 else f"{path.parent.name}/{name}")
        for path, name in zip(folders, names, strict=True)
    ]


def read_run(path: Path, name: str | None = None) -> Run:
    run = Run(path, name or path.name)
    *lines, unfinished = _read_text(path).split("\n")  # the last line is being written, or torn
    for line in lines:
        try:
            _take_line(run, line)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            run.damaged_lines += bool(line.strip("\0 "))
    run.damaged_lines += bool(unfinished) and run.end is not None
    if not run.starts:
        raise ConfigError(
            f"{path / 'events.jsonl'} tells of no run: there is no start in it",
            hint="it is damaged, or another program's; give the folder of a run of edgeddl.train",
        )
    return run


def _read_text(path: Path) -> str:
    try:
        return (path / "events.jsonl").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        what = "there is no events.jsonl in it" if path.is_dir() else "there is no such folder"
    except NotADirectoryError:
        what = "it is not a folder"
    except OSError as error:
        what = f"its events.jsonl cannot be read: {error.strerror}"
    raise ConfigError(
        f"{path} is not the folder of a run: {what}",
        hint="give the folder that edgeddl.train names at its start, such as runs/resnet18-cifar10",
    )


def _take_line(run: Run, line: str) -> None:
    event = json.loads(line)
    kind, now = event["event"], _number(event["time"])
    if not 0 <= now < END_OF_TIME:
        raise ValueError("not a time")
    if kind != "start" and not run.starts:
        raise ValueError("a run begins with its start")
    take = _TAKE.get(kind)
    if take is not None:  # else of a later version, or nothing that is shown
        take(run, event)
    run.last_time = now


def _take_start(run: Run, event: Json) -> None:
    if event["format"] != FORMAT:
        raise ConfigError(
            f"{run.path} was written by another version of edgeddl (format {event['format']})",
            hint="use the edgeddl that made it",
        )
    step = int(_number(event["step"]))
    options, ranks = dict(event["options"]), [dict(rank) for rank in event["ranks"]]
    run.steps = [_until(steps, step) for steps in run.steps if steps.first_step <= step]
    run.epochs = [epoch for epoch in run.epochs if epoch["step"] <= step]
    elapsed = run.steps[-1].elapsed if run.steps else 0.0
    checked = {"step": step, "options": options, "ranks": ranks, "elapsed": elapsed}
    run.starts.append(event | checked)
    run.end = None


def _until(steps: Steps, step: int) -> Steps:
    """Those up to this one; what ranks told is of all of them, and no use for some."""
    if steps.step <= step:
        return steps
    kept = steps.losses[: step - steps.first_step + 1]
    return replace(steps, step=step, losses=kept, told=0, ranks=[])


def _take_steps(run: Run, event: Json) -> None:
    start = run.starts[-1]
    run.steps.append(
        Steps(
            step=int(_number(event["step"])),
            losses=[math.nan if loss is None else float(loss) for loss in event["losses"]],
            learning_rate=_number(event["learning_rate"]),
            elapsed=start["elapsed"] + event["time"] - start["time"],
            warm_up=event["step"] - len(event["losses"]) < start["step"] + WARM_UP_STEPS,
            told=int(_number(event["told_steps"])),
            ranks=[_checked_rank(rank) for rank in event["ranks"]],
        )
    )


def _checked_rank(rank: Json) -> Json:
    numbers = {name: _number(rank[name]) for name in NUMBERS}
    return numbers | {name: _number_or_none(rank[name]) for name in VITALS}


def _number(value: Any) -> float:
    """Where a number is needed, a number of a size that can be reckoned with."""
    if not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise ValueError("not a number")
    return value


def _number_or_none(value: Any) -> float | None:
    return None if value is None else _number(value)


def _take_epoch(run: Run, event: Json) -> None:
    losses = {name: _loss_or_none(event.get(name)) for name in ("loss", "test_loss")}
    accuracy = _number_or_none(event.get("accuracy"))
    epoch, step = int(_number(event["epoch"])), int(_number(event["step"]))
    run.epochs.append(losses | {"accuracy": accuracy, "epoch": epoch, "step": step})


def _loss_or_none(value: Any) -> float | None:
    """A loss may be of any size: that of a diverged run is huge, and no damage."""
    if value is None or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    raise ValueError("not a loss")


def _take_end(run: Run, event: Json) -> None:
    accuracy = _number_or_none(event.get("final_accuracy"))
    error = None if event.get("error") is None else str(event["error"])
    figures = {name: _number_or_none(event.get(name)) for name in END_FIGURES}
    ranks = [
        {name: _number_or_none(rank.get(name)) for name in END_RANK_FIGURES}
        for rank in event.get("ranks", [])
    ]
    run.end = {
        "outcome": str(event["outcome"]),
        "final_accuracy": accuracy,
        "error": error,
        "ranks": ranks,
        **figures,
    }


_TAKE: dict[str, Callable[[Run, Json], None]] = {
    "start": _take_start,
    "steps": _take_steps,
    "epoch": _take_epoch,
    "end": _take_end,
}
