"""The plots of a report, each as SVG for the page and as PNG for slides and papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeddl.report.drawing import (
    COLOURS,
    INK,
    any_rank,
    begin_at_zero,
    colour_of,
    columns,
    drawn_in_style,
    name_lines,
    new_figure,
    plot_line,
    plot_ranks,
    prepare_time,
    render_png,
    render_svg,
    shown_parts,
    time_unit,
)
from edgeddl.report.results import (
    describe_ranks,
    efficiency,
    losses,
    rank_parts,
    results,
    slowed,
    throughput,
)
from edgeddl.report.run import Run, Steps
from edgeddl.run_format import PHASES

if TYPE_CHECKING:  # drawing.py reports a missing Matplotlib
    from matplotlib.figure import Figure

# The same colours as on the live page (edgeddl/metrics/live.html)
PHASE_COLOURS = {
    "data": "#66ccee",
    "forward": "#4477aa",
    "backward": "#228833",
    "allreduce_wait": "#ee6677",
    "update": "#ccbb44",
    "other": "#999999",
}
PHASE_NAMES = {"allreduce_wait": "waiting"}
# Long runs are subsampled: more points than a plot has pixels make the page slow.
MAX_LOSSES = 2000
# Leaves room for a line or a marker at 100 %.
PERCENT_LIMITS = (0, 105)
# A loss that rises to this multiple of the first one is plotted on a logarithmic axis.
DIVERGED_FACTOR = 20


@dataclass(frozen=True)
class Plot:
    """A figure with title and caption; without a figure, the caption gives the reason."""

    name: str
    title: str
    text: str
    svg: str | None = None
    png: bytes | None = None


def draw_plots(runs: Sequence[Run]) -> list[Plot]:
    with drawn_in_style():
        return [_draw(kind, runs) for kind in KINDS]


@dataclass(frozen=True)
class _Kind:
    """A kind of plot. If `draw` returns None because data is missing, `absent` is the caption."""

    name: str
    title: str
    text: str
    absent: str
    draw: Callable[[Sequence[Run]], Figure | None]


def _draw(kind: _Kind, runs: Sequence[Run]) -> Plot:
    figure = kind.draw(runs)
    if figure is None:
        return Plot(kind.name, kind.title, kind.absent)
    return Plot(kind.name, kind.title, kind.text, render_svg(figure), render_png(figure))


# Loss and accuracy


def _draw_course(runs: Sequence[Run]) -> Figure | None:
    if not any(losses(run) for run in runs):
        return None
    figure = new_figure(3.0)
    loss, accuracy, rate = figure.subplots(1, 3, sharex=True, width_ratios=(3, 3, 2))
    for index, run in enumerate(runs):
        colour = colour_of(index)
        points = losses(run)
        points = points[:: len(points) // MAX_LOSSES + 1]
        steps = [step for step, _ in points]
        loss.plot(steps, [value for _, value in points], color=colour, alpha=0.3, linewidth=0.8)
        loss.plot(steps, smoothed([v for _, v in points]), color=colour, label=run.name)
        percents = [100 * one["accuracy"] for one in run.evaluations]
        accuracy.plot(
            [e["step"] for e in run.evaluations], percents, "o-", color=colour, markersize=4
        )
        rates = [steps.learning_rate for steps in run.steps]
        rate.plot([steps.step for steps in run.steps], rates, color=colour)
    name_lines(loss, len(runs))
    accuracy.set_ylim(*PERCENT_LIMITS)
    if any(_has_diverged(run) for run in runs):
        loss.set_yscale("log")
    for ax, title in ((loss, "loss"), (accuracy, "accuracy, %"), (rate, "learning rate")):
        ax.set_title(title)
        ax.set_xlabel("step")
    return figure


def _has_diverged(run: Run) -> bool:
    """Whether a linear axis would show only the largest losses."""
    values = [value for _, value in losses(run)]
    return bool(values) and max(values) > DIVERGED_FACTOR * max(values[0], 1.0)


def smoothed(values: Sequence[float]) -> list[float]:
    """Running mean over a fiftieth of the run, at least 5 steps."""
    width = max(len(values) // 50, 5)
    return [
        sum(part) / len(part)
        for index in range(len(values))
        for part in (values[max(index - width + 1, 0) : index + 1],)
    ]


def _draw_throughput(runs: Sequence[Run]) -> Figure | None:
    if not any(shown_parts(run) for run in runs):
        return None
    figure, axes = columns(runs)
    unit = time_unit(runs)
    for ax, run in zip(axes, runs, strict=True):
        plot_ranks(ax, run, unit, lambda rank: _ratio(rank["images"], rank["seconds"]))
    begin_at_zero(axes[0], "images/s per rank")
    return figure


def _ratio(value: float, whole: float) -> float | None:
    return value / whole if whole > 0 else None


def _draw_memory(runs: Sequence[Run]) -> Figure | None:
    if not any_rank(runs, "memory_bytes"):
        return None
    figure, axes = columns(runs)
    unit = time_unit(runs)
    for ax, run in zip(axes, runs, strict=True):
        plot_ranks(ax, run, unit, lambda rank: _scaled(rank["memory_bytes"], 2**-20))
    begin_at_zero(axes[0], "memory per rank, MiB")
    return figure


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# Where the time goes


def _draw_split(runs: Sequence[Run]) -> Figure | None:
    if not any(shown_parts(run) for run in runs):
        return None
    figure = new_figure(5.2)
    grid = figure.subplots(2, len(runs), squeeze=False, height_ratios=(3, 2))
    for ax in grid[0][1:]:
        ax.sharey(grid[0][0])  # not the row below: runs have different ranks
    for column, run in enumerate(runs):
        if len(runs) > 1:
            grid[0][column].set_title(run.name)
        _stack_steps(grid[0][column], run)
        _stack_ranks(grid[1][column], run)
    grid[0][0].set_ylabel("ms per step, mean over ranks")
    grid[1][0].set_ylabel("rank")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure


def _stack_steps(ax: Any, run: Run) -> None:
    parts = [steps for steps in shown_parts(run) if steps.reported]
    parts = [*parts[:1], *parts]  # repeated to start the plot at the first step
    moments = [steps.step for steps in parts]
    moments[:1] = [steps.first_step for steps in parts[:1]]
    series = [[_phase_milliseconds(steps, phase) for steps in parts] for phase in PHASE_COLOURS]
    names = [PHASE_NAMES.get(phase, phase) for phase in PHASE_COLOURS]
    ax.stackplot(moments, series, labels=names, colors=list(PHASE_COLOURS.values()))
    ax.set_xlabel("step")


def _stack_ranks(ax: Any, run: Run) -> None:
    """A bar for each rank with the share of each phase."""
    ranks = [rank_parts(shown_parts(run), rank) for rank in range(len(run.ranks))]
    left = [0.0] * len(ranks)
    for phase, colour in PHASE_COLOURS.items():
        shares = [
            100 * sum(_phase(part, phase) for part in rank) / sum(part["seconds"] for part in rank)
            if rank
            else 0.0
            for rank in ranks
        ]
        ax.barh(range(len(ranks)), shares, left=left, color=colour, height=0.7)
        left = [before + share for before, share in zip(left, shares, strict=True)]
    ax.set_yticks(range(len(ranks)), [f"{n} {rank['host']}" for n, rank in enumerate(run.ranks)])
    ax.set_ylim(len(ranks) - 0.5, -0.5)
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of time")


def _phase(rank: dict[str, Any], phase: str) -> float:
    if phase == "other":
        return max(rank["seconds"] - sum(rank[name] for name in PHASES), 0.0)
    return rank[phase]


def _phase_milliseconds(steps: Steps, phase: str) -> float:
    """Mean time of one step over ranks."""
    seconds = sum(_phase(rank, phase) for rank in steps.ranks) / len(steps.ranks)
    return 1000 * seconds / steps.reported


# Scaling


def _draw_scaling(runs: Sequence[Run]) -> Figure | None:
    shown = [run for run in runs if throughput(run.measured)]
    if not any(len(run.ranks) > 1 for run in shown):
        return None
    figure = new_figure(3.0)
    over_time, speeds = figure.subplots(1, 2, width_ratios=(3, 2))
    unit = time_unit(shown)
    for index, run in enumerate(shown):
        points = [
            (steps.elapsed / unit[0], _scaled(efficiency([steps]), 100))
            for steps in shown_parts(run)
        ]
        plot_line(over_time, points, color=colour_of(index), label=run.name)
        prepare_time(over_time, run, unit)
    over_time.set_ylim(*PERCENT_LIMITS)
    over_time.set_title("efficiency, %")
    name_lines(over_time, len(shown))
    _draw_speeds(speeds, shown)
    return figure


def _draw_speeds(ax: Any, runs: Sequence[Run]) -> None:
    """Bars of the measured throughput, in front of the throughput without waiting."""
    positions = range(len(runs))
    reached = [results(run)["images_per_second"] or 0.0 for run in runs]
    efficiencies = [results(run)["scaling_efficiency"] for run in runs]
    alone = [speed / (part or 1.0) for speed, part in zip(reached, efficiencies, strict=True)]
    ax.barh(positions, alone, color=COLOURS[-1], alpha=0.45, height=0.75, label="without waiting")
    bars = ax.barh(positions, reached, color=COLOURS[0], height=0.45, label="measured")
    ax.bar_label(bars, fmt="%.1f", padding=3)
    names = [f"{run.name}\nranks: {describe_ranks(run)}" for run in runs]
    ax.set_yticks(positions, names)
    ax.set_ylim(len(runs) - 0.4, -0.9)
    ax.set_title("images/s, all ranks")
    ax.legend(loc="upper right", ncols=2)


# Temperature and throttling


def _draw_temperature(runs: Sequence[Run]) -> Figure | None:
    if not (any_rank(runs, "temperature_celsius") or any_rank(runs, "clock_hertz")):
        return None
    figure = new_figure(6.0)
    grid = figure.subplots(3, len(runs), sharex="col", sharey="row", squeeze=False)
    unit = time_unit(runs)
    for column, run in enumerate(runs):
        heat, clock, speed = (row[column] for row in grid)
        plot_ranks(heat, run, unit, lambda rank: rank["temperature_celsius"])
        plot_ranks(clock, run, unit, lambda rank: _scaled(rank["clock_hertz"], 1e-9))
        points = [(steps.elapsed / unit[0], throughput([steps])) for steps in shown_parts(run)]
        plot_line(speed, points, color=INK)
        prepare_time(speed, run, unit)
        for ax in (heat, clock, speed):
            _shade_throttled(ax, run, unit)
        for ax in (heat, clock):
            ax.set_xlabel("")
        if len(runs) > 1:
            heat.set_title(run.name)
    for row, label in zip(
        grid, ("temperature, °C", "clock, GHz", "images/s, all ranks"), strict=True
    ):
        begin_at_zero(row[0], label)
    return figure


def _shade_throttled(ax: Any, run: Run, unit: tuple[float, str]) -> None:
    """Shade the time in which a board was throttled."""
    before = run.starts[0]["elapsed"]
    for steps in shown_parts(run):
        if any(slowed(rank) for rank in steps.ranks):
            ax.axvspan(before / unit[0], steps.elapsed / unit[0], color="#ee6677", alpha=0.2, lw=0)
        before = steps.elapsed


KINDS = (
    _Kind(
        "loss",
        "Loss and accuracy",
        "Training loss of each step (thin line) and its running mean, test accuracy at each "
        "evaluation, and learning rate.",
        "No step has been recorded yet.",
        _draw_course,
    ),
    _Kind(
        "throughput",
        "Throughput per rank",
        "Images per second, including the time spent waiting. All ranks take the same steps, so "
        "the lines differ only if ranks have different shares of a batch. A dotted line marks a "
        "resume.",
        "No rank has reported a step yet.",
        _draw_throughput,
    ),
    _Kind(
        "time",
        "Where the time goes",
        "Top: the time of a step by phase, averaged over ranks. Bottom: each rank over the whole "
        "run. Waiting is the part of the all-reduces that backward does not hide. The rank that "
        "waits least is the bottleneck.",
        "No rank has reported a step yet.",
        _draw_split,
    ),
    _Kind(
        "scaling",
        "Scaling",
        "Efficiency is the measured throughput of all ranks divided by their throughput without "
        "waiting (grey). It does not show other losses, for example ranks that share the cores of "
        "one host: compare with a run on one rank for those.",
        "This plot needs a run on more than one rank.",
        _draw_scaling,
    ),
    _Kind(
        "temperature",
        "Temperature and throttling",
        "Temperature and clock frequency of the boards, and the throughput of all ranks. Red: the "
        "firmware reports that a board was throttled because of heat or its power supply.",
        "The machines of these runs have no readable temperature or clock sensors.",
        _draw_temperature,
    ),
    _Kind(
        "memory",
        "Memory",
        "Resident memory of each rank. A line that rises until the end indicates a leak. If a line "
        "is close to the memory of the board, use a smaller --batch-size.",
        "No rank has reported its memory.",
        _draw_memory,
    ),
)
