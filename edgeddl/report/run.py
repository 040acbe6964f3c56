"""Reads the folder of a run that is finished, running, killed or resumed."""

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

from edgeddl import run_format
from edgeddl.errors import ConfigError

Json = dict[str, Any]
# Values beyond these limits mean that the file is damaged.
LARGEST_NUMBER, LATEST_TIME = 1e18, 1e11


@dataclass(frozen=True)
class Steps:
    """Consecutive steps, ending with `step`.

    elapsed: seconds of the run at the last step, without the time between an end and a resume
    reported: how many of these steps, from the first, the ranks have reported on
    ranks: for each rank, sums over the reported steps; memory and sensors at the last of them
    """

    step: int
    losses: list[float]
    learning_rate: float
    elapsed: float
    warm_up: bool
    reported: int
    ranks: list[Json]

    @property
    def first_step(self) -> int:
        return self.step - len(self.losses) + 1

    @property
    def seconds(self) -> float:
        """Wall time of the slowest rank."""
        return max((rank["seconds"] for rank in self.ranks), default=0.0)

    @property
    def images(self) -> int:
        return sum(rank["images"] for rank in self.ranks)


def subsample(parts: Sequence[Steps], most: int = 400) -> list[Steps]:
    """Merge neighbouring parts until about `most` are left."""
    size = len(parts) // most + 1
    return [
        _merge(same[first : first + size])
        for same in by_ranks(parts)
        for first in range(0, len(same), size)
    ]


def by_ranks(parts: Iterable[Steps]) -> list[list[Steps]]:
    """Groups of consecutive parts with the same number of ranks; a resume may change it."""
    return [list(same) for _, same in groupby(parts, key=lambda steps: len(steps.ranks))]


def _merge(parts: Sequence[Steps]) -> Steps:
    ranks = [_merge_rank(rank) for rank in zip(*(steps.ranks for steps in parts), strict=True)]
    losses = [loss for steps in parts for loss in steps.losses]
    reported = sum(steps.reported for steps in parts)
    return replace(parts[-1], losses=losses, reported=reported, ranks=ranks)


def _merge_rank(parts: Sequence[Json]) -> Json:
    bits = [int(part["throttling"]) for part in parts if part["throttling"] is not None]
    sums = {name: sum(part[name] for part in parts) for name in run_format.RANK_SUMS}
    return parts[-1] | sums | {"throttling": reduce(operator.or_, bits) if bits else None}


@dataclass
class Run:
    """The recorded events; steps that were repeated after a resume are counted once."""

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
        """Host, cpu and threads of each rank, from the last start that had this rank."""
        most = max(len(start["ranks"]) for start in self.starts)
        last = [start["ranks"] for start in self.starts]
        return [next(r[n] for r in reversed(last) if n < len(r)) for n in range(most)]

    @property
    def rank_counts(self) -> list[tuple[int, int]]:
        """Each number of ranks, with the step after which it was used."""
        steps = [(start["step"], len(start["ranks"])) for start in self.starts]
        # A start from an earlier step replaces the starts from later steps before it.
        valid = [s for i, s in enumerate(steps) if all(s[0] < later for later, _ in steps[i + 1 :])]
        return [next(same) for _, same in groupby(valid, key=lambda pair: pair[1])]

    @property
    def measured(self) -> list[Steps]:
        """Reported steps without warm-up; the warm-up steps if there are no others."""
        reported = [steps for steps in self.steps if steps.seconds > 0]
        return [steps for steps in reported if not steps.warm_up] or reported

    @property
    def evaluations(self) -> list[Json]:
        """Step and accuracy of each evaluation: after epochs, and where --max-steps ended the run.

        The latter is dropped when the run continues, as in its state (training/state.py).
        """
        found = [epoch for epoch in self.epochs if epoch["accuracy"] is not None]
        last = self.steps[-1].step if self.steps else 0
        # If a signal stopped the run, the final accuracy is that of the last epoch.
        end = self.end or {}
        at_end = end["final_accuracy"] if self.status == run_format.FINISHED else None
        if at_end is not None and not (found and found[-1]["step"] == last):
            found.append({"step": last, "accuracy": at_end})
        return [{"step": one["step"], "accuracy": one["accuracy"]} for one in found]

    @property
    def status(self) -> str:
        """finished, stopped or failed; open if the run is still running or was killed."""
        return self.end["outcome"] if self.end else "open"


def read_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs in these folders, with a distinct name for each."""
    folders = [Path(os.path.abspath(path)) for path in paths]
    doubled = {path for path in folders if folders.count(path) > 1}
    if doubled:
        raise ConfigError(f"the run {doubled.pop()} is listed twice")
    names = [path.name for path in folders]
    return [
        read_run(path, path.name if names.count(path.name) == 1 else f"{path.parent.name}/{name}")
        for path, name in zip(folders, names, strict=True)
    ]


def read_run(path: Path, name: str | None = None) -> Run:
    run = Run(path, name or path.name)
    *lines, unfinished = _read_text(path).split("\n")  # the last line may still be incomplete
    for line in lines:
        try:
            _read_line(run, line)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            run.damaged_lines += bool(line.strip("\0 "))
    run.damaged_lines += bool(unfinished) and run.end is not None
    if not run.starts:
        raise ConfigError(
            f"{path / run_format.EVENTS_FILE} contains no start event",
            hint="the file is damaged or was not written by edgeddl; give the folder of a run",
        )
    return run


def _read_text(path: Path) -> str:
    try:
        return (path / run_format.EVENTS_FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        what = f"it contains no {run_format.EVENTS_FILE}" if path.is_dir() else "no such folder"
    except NotADirectoryError:
        what = "not a folder"
    except OSError as error:
        what = f"cannot read {run_format.EVENTS_FILE}: {error.strerror}"
    raise ConfigError(
        f"{path} is not a run folder: {what}",
        hint="give the folder that training prints when it starts, such as runs/resnet18-cifar10",
    )


def _read_line(run: Run, line: str) -> None:
    event = json.loads(line)
    kind, now = event["event"], _number(event["time"])
    if not 0 <= now < LATEST_TIME:
        raise ValueError("not a time")
    if kind != run_format.START and not run.starts:
        raise ValueError("an event before the first start")
    read = _READERS.get(kind)
    if read is not None:  # otherwise an event of a later version, or one that reports ignore
        read(run, event)
    run.last_time = now


def _read_start(run: Run, event: Json) -> None:
    if event["format"] != run_format.FORMAT:
        raise ConfigError(
            f"{run.path} has format {event['format']}, but this version of edgeddl reads format"
            f" {run_format.FORMAT}",
            hint="use the version of edgeddl that wrote it",
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
    """The steps up to `step`. Reports of ranks are dropped: they are sums over all the steps."""
    if steps.step <= step:
        return steps
    kept = steps.losses[: step - steps.first_step + 1]
    return replace(steps, step=step, losses=kept, reported=0, ranks=[])


def _read_steps(run: Run, event: Json) -> None:
    start = run.starts[-1]
    run.steps.append(
        Steps(
            step=int(_number(event["step"])),
            losses=[math.nan if loss is None else float(loss) for loss in event["losses"]],
            learning_rate=_number(event["learning_rate"]),
            elapsed=start["elapsed"] + event["time"] - start["time"],
            warm_up=event["step"] - len(event["losses"]) < start["step"] + run_format.WARM_UP_STEPS,
            reported=int(_number(event[run_format.REPORTED_STEPS])),
            ranks=[_checked_rank(rank) for rank in event["ranks"]],
        )
    )


def _checked_rank(rank: Json) -> Json:
    numbers = {name: _number(rank[name]) for name in run_format.RANK_SUMS}
    return numbers | {name: _number_or_none(rank[name]) for name in run_format.RANK_VITALS}


def _number(value: Any) -> float:
    """A required number of a plausible size."""
    if not isinstance(value, int | float) or not abs(value) < LARGEST_NUMBER:
        raise ValueError("not a number")
    return value


def _number_or_none(value: Any) -> float | None:
    return None if value is None else _number(value)


def _read_epoch(run: Run, event: Json) -> None:
    losses = {name: _loss_or_none(event.get(name)) for name in ("loss", "test_loss")}
    accuracy = _number_or_none(event.get("accuracy"))
    epoch, step = int(_number(event["epoch"])), int(_number(event["step"]))
    run.epochs.append(losses | {"accuracy": accuracy, "epoch": epoch, "step": step})


def _loss_or_none(value: Any) -> float | None:
    """A loss of any size: a diverged run has huge ones, so they do not mean damage."""
    if value is None or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    raise ValueError("not a loss")


def _read_end(run: Run, event: Json) -> None:
    error = None if event.get("error") is None else str(event["error"])
    figures = {name: _number_or_none(event.get(name)) for name in run_format.END_FIGURES}
    ranks = [
        {name: _number_or_none(rank.get(name)) for name in run_format.END_RANK_FIGURES}
        for rank in event.get("ranks", [])
    ]
    run.end = {"outcome": str(event["outcome"]), "error": error, "ranks": ranks, **figures}


_READERS: dict[str, Callable[[Run, Json], None]] = {
    run_format.START: _read_start,
    run_format.STEPS: _read_steps,
    run_format.EPOCH: _read_epoch,
    run_format.END: _read_end,
}
