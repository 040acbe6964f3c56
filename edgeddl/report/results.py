"""The figures of a run, for tables, JSON and plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from edgeddl.hardware import Throttling
from edgeddl.report.run import Json, Run, Steps, by_ranks
from edgeddl.run_format import PHASES, REPORTED_STEPS

# Options that differ from run to run without affecting results.
NEVER_COMPARED = (
    "run_dir", "summary", "timeline", "timeline_steps", "resume", "progress", "metrics_port",
    "metrics_address",
)  # fmt: skip


def describe_run(run: Run) -> Json:
    """Everything a report shows about a run, as JSON values."""
    return {
        "name": run.name,
        "path": str(run.path),
        "status": run.status,
        "error": run.end["error"] if run.end else None,
        "last_event": _iso(run.last_time),
        "starts": [
            {"time": _iso(start["time"]), "step": start["step"], "ranks": len(start["ranks"])}
            for start in run.starts
        ],
        "damaged_lines": run.damaged_lines,
        "options": run.options,
        "versions": run.starts[-1].get("versions"),
        "ranks": [rank | own for rank, own in zip(run.ranks, rank_results(run), strict=True)],
        "results": results(run),
        "losses": losses(run),
        "epochs": run.epochs,
        "steps": [_describe_steps(steps) for steps in run.steps],
    }


def results(run: Run) -> Json:
    accuracies = [one["accuracy"] for one in run.evaluations]
    known = [loss for _, loss in losses(run)]
    return {
        "steps": run.steps[-1].step if run.steps else run.starts[-1]["step"],
        "total_steps": run.starts[-1].get("total_steps"),
        "seconds": run.steps[-1].elapsed if run.steps else 0.0,
        "last_loss": known[-1] if known else None,
        "accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        "images_per_second": _figure(run, "images_per_second", throughput),
        "scaling_efficiency": _figure(run, "scaling_efficiency", efficiency),
        "wait_share": _wait_share(run.measured),
        "memory_bytes": _peak_memory(run),
        "temperature_celsius": _most(run, "temperature_celsius"),
        "slowed": _was_slowed(run),
    }


def _figure(run: Run, name: str, of_steps: Callable[[Sequence[Steps]], float | None]) -> Any:
    """From the summary of the run; without one, computed from the steps recorded so far."""
    return (run.end and run.end[name]) or of_steps(run.measured)


def _peak_memory(run: Run) -> float | None:
    """Of the largest rank: its peak from the summary, or else the largest recorded value."""
    peaks = [rank["peak_memory_bytes"] for rank in run.end["ranks"]] if run.end else []
    known = [peak for peak in peaks if peak is not None]
    return max(known) if known else _most(run, "memory_bytes")


def rank_results(run: Run) -> list[Json]:
    """Means of each rank over the run; throughput from the summary, if there is one."""
    found = [_rank_result(rank_parts(run.measured, rank)) for rank in range(len(run.ranks))]
    ends = run.end["ranks"] if run.end and len(run.end["ranks"]) == len(found) else []
    for rank, end in zip(found, ends, strict=False):
        rank |= {name: value for name, value in end.items() if value}
    return found


def rank_parts(parts: Iterable[Steps], rank: int) -> list[Json]:
    """What one rank reported, from the parts of the run that had this rank."""
    return [steps.ranks[rank] for steps in parts if rank < len(steps.ranks)]


def _rank_result(parts: Sequence[Json]) -> Json:
    seconds = sum(part["seconds"] for part in parts)
    shares = {
        phase: sum(part[phase] for part in parts) / seconds if seconds else None for phase in PHASES
    }
    images = sum(part["images"] for part in parts)
    return {"images_per_second": images / seconds if seconds else None, "phase_shares": shares}


def losses(run: Run) -> list[tuple[int, float]]:
    """Step and loss."""
    return [
        (steps.first_step + index, loss)
        for steps in run.steps
        for index, loss in enumerate(steps.losses)
        if math.isfinite(loss)
    ]


def throughput(parts: Sequence[Steps]) -> float | None:
    """Images of all ranks over the wall time of the steps."""
    seconds = sum(steps.seconds for steps in parts)
    return sum(steps.images for steps in parts) / seconds if seconds else None


def throughput_alone(parts: Sequence[Steps]) -> float | None:
    """Throughput of all ranks if none had waited for the others.

    If the number of ranks changed, the mean weighted by time.
    """
    groups = [(sum(steps.seconds for steps in same), _alone(same)) for same in by_ranks(parts)]
    seconds = sum(group_seconds for group_seconds, _ in groups)
    if not seconds or any(speed is None for _, speed in groups):
        return None
    return sum(group_seconds * (speed or 0.0) for group_seconds, speed in groups) / seconds


def _alone(parts: Sequence[Steps]) -> float | None:
    """The same for steps with a constant number of ranks."""
    ranks = list(zip(*(steps.ranks for steps in parts), strict=True))
    busy = [sum(part["seconds"] - part["allreduce_wait"] for part in rank) for rank in ranks]
    images = [sum(part["images"] for part in rank) for rank in ranks]
    if not busy or min(busy) <= 0:
        return None
    return sum(one / seconds for one, seconds in zip(images, busy, strict=True))


def efficiency(parts: Sequence[Steps]) -> float | None:
    together, alone = throughput(parts), throughput_alone(parts)
    return together / alone if together and alone else None


def slowed(rank: Json) -> bool:
    """Whether the rank's board was throttled at the time, by heat or by its power supply."""
    bits = rank["throttling"]
    return bits is not None and Throttling(int(bits)).slowed


def _wait_share(parts: Sequence[Steps]) -> float | None:
    ranks = [rank for steps in parts for rank in steps.ranks]
    seconds = sum(rank["seconds"] for rank in ranks)
    return sum(rank["allreduce_wait"] for rank in ranks) / seconds if seconds else None


def _most(run: Run, name: str) -> float | None:
    values = (rank[name] for steps in run.steps for rank in steps.ranks)
    return max((value for value in values if value is not None), default=None)


def _was_slowed(run: Run) -> bool | None:
    """None if no board reports throttling."""
    known = [rank for steps in run.steps for rank in steps.ranks if rank["throttling"] is not None]
    return any(slowed(rank) for rank in known) if known else None


def _describe_steps(steps: Steps) -> Json:
    return {
        "step": steps.step,
        "elapsed_seconds": round(steps.elapsed, 3),
        "learning_rate": steps.learning_rate,
        REPORTED_STEPS: steps.reported,
        "ranks": steps.ranks,
    }


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


# Rows of the table of results: key, label and format.
Format = Callable[[Any], str]
RESULTS: tuple[tuple[str, str, Format], ...] = (
    ("steps", "steps", lambda value: f"{value:,}"),
    ("last_loss", "last loss", lambda value: f"{value:.4f}" if value < 1e4 else f"{value:.3g}"),
    ("accuracy", "accuracy", lambda value: f"{value:.2%}"),
    ("best_accuracy", "best accuracy", lambda value: f"{value:.2%}"),
    ("seconds", "time", lambda value: describe_seconds(value)),
    ("images_per_second", "images/s", lambda value: f"{value:.1f}"),
    ("scaling_efficiency", "efficiency", lambda value: f"{value:.1%}"),
    ("wait_share", "waiting", lambda value: f"{value:.1%}"),
    ("memory_bytes", "peak memory per rank", lambda value: f"{value / 2**20:.0f} MiB"),
    ("temperature_celsius", "highest temperature", lambda value: f"{value:.0f} °C"),
    ("slowed", "throttled", lambda value: "yes" if value else "no"),
)


def result_rows(runs: Sequence[Run]) -> list[list[str]]:
    """A row for each result, a column for each run; "-" for unknown values."""
    found = [results(run) for run in runs]
    rows = [
        ["status", *(describe_status(run) for run in runs)],
        ["ranks", *(describe_ranks(run) for run in runs)],
    ]
    for key, label, form in RESULTS:
        values = [one[key] for one in found]
        if any(value is not None for value in values):
            rows.append([label, *("-" if value is None else form(value) for value in values)])
    return rows


def differing_options(runs: Sequence[Run]) -> list[list[str]]:
    """A row for each option that differs between runs."""
    names = dict.fromkeys(name for run in runs for name in run.options)
    rows = [
        [f"--{name.replace('_', '-')}", *(_option(run.options.get(name)) for run in runs)]
        for name in names
        if name not in NEVER_COMPARED
    ]
    return [row for row in rows if len(set(row[1:])) > 1]


def describe_ranks(run: Run) -> str:
    """The number of ranks, e.g. "4", or "4, then 2 from step 121" if a resume changed it."""
    (_, first), *others = run.rank_counts
    return ", ".join([str(first), *(f"then {n} from step {step + 1}" for step, n in others)])


def describe_status(run: Run) -> str:
    if run.status != "open":
        return run.status
    moment = datetime.fromtimestamp(run.last_time).strftime("%Y-%m-%d %H:%M:%S")
    return f"running or killed; last event {moment}"


def describe_seconds(seconds: float) -> str:
    """E.g. "1:05:09"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "-" if value is None else str(value)
