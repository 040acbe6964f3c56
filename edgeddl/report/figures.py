"""The plots of a report. Each is drawn once: as SVG for the page, as PNG for slides and papers."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgeddl.errors import ConfigError
from edgeddl.report.results import (
    efficiency,
    losses,
    slowed,
    throughput,
    throughput_alone,
)
from edgeddl.report.run import PHASES, Run, Steps, thinned

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError as error:
    raise ConfigError(
        f"plots are drawn by Matplotlib, which cannot be imported: {error}",
        hint="pip install 'edgeddl[report]', or --json for the numbers alone",
    ) from None

# Text and lines have this colour, so that the page can put its own, light or dark, in its place.
INK = "#010203"
# Paul Tol's "bright": told apart by the colour-blind, and on light and dark paper.
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
PHASE_COLOURS = {
    "data": "#66ccee",
    "forward": "#4477aa",
    "backward": "#228833",
    "allreduce_wait": "#ee6677",
    "update": "#ccbb44",
    "other": "#999999",
}
PHASE_NAMES = {"allreduce_wait": "waiting"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "edgeddl",  # the same run, the same file
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
}
# Of a long run every so-manieth: more than a plot has pixels makes the page slow.
MOST_LOSSES = 2000
# More than this many, and the names in a legend hide the plot.
MOST_NAMES = 8


@dataclass(frozen=True)
class Plot:
    """A figure with its words. Without a figure, the text says why there is none."""

    name: str
    title: str
    text: str
    svg: str | None = None
    png: bytes | None = None


def draw_plots(runs: Sequence[Run]) -> list[Plot]:
    with matplotlib.rc_context(STYLE):
        return [_draw(kind, runs) for kind in KINDS]


@dataclass(frozen=True)
class _Kind:
    """A sort of plot: `draw` gives None where runs do not have what it shows, `absent` says so."""

    name: str
    title: str
    text: str
    absent: str
    draw: Callable[[Sequence[Run]], Figure | None]


def _draw(kind: _Kind, runs: Sequence[Run]) -> Plot:
    figure = kind.draw(runs)
    if figure is None:
        return Plot(kind.name, kind.title, kind.absent)
    return Plot(kind.name, kind.title, kind.text, _svg(figure), _png(figure))


def _svg(figure: Figure) -> str:
    """For the inside of a page: without what only files of their own have, addresses above all."""
    stream = io.StringIO()
    unnamed = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=unnamed)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    for namespace in ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"):
        svg = svg.replace(f' xmlns="{namespace}"', "").replace(f' xmlns:xlink="{namespace}"', "")
    return svg


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def _new_figure(height: float) -> Figure:
    return Figure(figsize=(10, height), layout="constrained")


def _columns(runs: Sequence[Run], height: float = 2.8) -> tuple[Figure, list[Any]]:
    """A column for each run, the same scale in all of them."""
    figure = _new_figure(height)
    axes = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    if len(runs) > 1:
        for ax, run in zip(axes, runs, strict=True):
            ax.set_title(run.name)
    return figure, list(axes)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _name_lines(ax: Any, count: int) -> None:
    if 1 < count <= MOST_NAMES:
        ax.legend(loc="best", ncols=2 if count > 4 else 1)


# Loss and accuracy


def _draw_course(runs: Sequence[Run]) -> Figure | None:
    if not any(losses(run) for run in runs):
        return None
    figure = _new_figure(3.0)
    loss, accuracy, rate = figure.subplots(1, 3, sharex=True, width_ratios=(3, 3, 2))
    for index, run in enumerate(runs):
        colour = _colour(index)
        points = losses(run)
        points = points[:: len(points) // MOST_LOSSES + 1]
        steps = [step for step, _ in points]
        loss.plot(steps, [value for _, value in points], color=colour, alpha=0.3, linewidth=0.8)
        loss.plot(steps, smoothed([v for _, v in points]), color=colour, label=run.name)
        evaluated = [epoch for epoch in run.epochs if epoch["accuracy"] is not None]
        percents = [100 * epoch["accuracy"] for epoch in evaluated]
        accuracy.plot([e["step"] for e in evaluated], percents, "o-", color=colour, markersize=4)
        rates = [steps.learning_rate for steps in run.steps]
        rate.plot([steps.step for steps in run.steps], rates, color=colour)
    _name_lines(loss, len(runs))
    accuracy.set_ylim(0, 100)
    for ax, title in ((loss, "loss"), (accuracy, "accuracy, %"), (rate, "learning rate")):
        ax.set_title(title)
        ax.set_xlabel("step")
    return figure


def smoothed(values: Sequence[float]) -> list[float]:
    """Means over a window that grows with the run: a fiftieth of it, and at least 5 steps."""
    width = max(len(values) // 50, 5)
    return [
        sum(part) / len(part)
        for index in range(len(values))
        for part in (values[max(index - width + 1, 0) : index + 1],)
    ]


# Over time: each value a level that holds since the point before


def _time_unit(runs: Iterable[Run]) -> tuple[float, str]:
    longest = max((run.steps[-1].elapsed for run in runs if run.steps), default=0.0)
    for seconds, name in ((3600.0, "hours"), (60.0, "minutes")):
        if longest >= 3 * seconds:
            return seconds, name
    return 1.0, "seconds"


def _prepare_time(ax: Any, run: Run, unit: tuple[float, str]) -> None:
    """The axis, and a line where the run was taken up again."""
    ax.set_xlabel(f"time, {unit[1]}")
    for start in run.starts[1:]:
        ax.axvline(start["elapsed"] / unit[0], color=INK, linewidth=0.8, linestyle=":")


def _plot_ranks(
    ax: Any, run: Run, unit: tuple[float, str], value: Callable[[dict[str, Any]], float | None]
) -> None:
    for rank, facts in enumerate(run.ranks):
        points = [(steps.elapsed / unit[0], value(steps.ranks[rank])) for steps in _parts(run)]
        _plot_line(ax, points, color=_colour(rank), label=f"{rank} {facts['host']}")
    _name_lines(ax, len(run.ranks))
    _prepare_time(ax, run, unit)


def _begin_at_zero(first: Any, label: str) -> None:
    """The axis that all runs share; when all are drawn, because its upper end is fixed then."""
    first.set_ylabel(label)
    first.set_ylim(bottom=0)


def _plot_line(ax: Any, points: Sequence[tuple[float, float | None]], **style: Any) -> None:
    """With gaps where nothing is known; a single point, of a short run, would not be seen."""
    values = [math.nan if y is None else y for _, y in points]
    ax.plot([x for x, _ in points], values, marker="o" if len(points) == 1 else None, **style)


def _parts(run: Run) -> list[Steps]:
    return thinned(run.measured)


def _any_rank(runs: Sequence[Run], name: str) -> bool:
    return any(
        rank[name] is not None for run in runs for steps in _parts(run) for rank in steps.ranks
    )


def _draw_throughput(runs: Sequence[Run]) -> Figure | None:
    if not any(_parts(run) for run in runs):
        return None
    figure, axes = _columns(runs)
    unit = _time_unit(runs)
    for ax, run in zip(axes, runs, strict=True):
        _plot_ranks(ax, run, unit, lambda rank: _ratio(rank["images"], rank["seconds"]))
    _begin_at_zero(axes[0], "images/s of a rank")
    return figure


def _ratio(value: float, whole: float) -> float | None:
    return value / whole if whole > 0 else None


def _draw_memory(runs: Sequence[Run]) -> Figure | None:
    if not _any_rank(runs, "memory_bytes"):
        return None
    figure, axes = _columns(runs)
    unit = _time_unit(runs)
    for ax, run in zip(axes, runs, strict=True):
        _plot_ranks(ax, run, unit, lambda rank: _scaled(rank["memory_bytes"], 2**-20))
    _begin_at_zero(axes[0], "memory of a rank, MiB")
    return figure


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# Where the time goes


def _draw_split(runs: Sequence[Run]) -> Figure | None:
    if not any(_parts(run) for run in runs):
        return None
    figure = _new_figure(5.2)
    grid = figure.subplots(2, len(runs), squeeze=False, height_ratios=(3, 2))
    for ax in grid[0][1:]:
        ax.sharey(grid[0][0])  # not below: runs differ in their ranks
    for column, run in enumerate(runs):
        if len(runs) > 1:
            grid[0][column].set_title(run.name)
        _stack_steps(grid[0][column], run)
        _stack_ranks(grid[1][column], run)
    grid[0][0].set_ylabel("ms a step, mean over ranks")
    grid[1][0].set_ylabel("rank")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure


def _stack_steps(ax: Any, run: Run) -> None:
    parts = [steps for steps in _parts(run) if steps.told]
    parts = [*parts[:1], *parts]  # the first from its first step on
    moments = [steps.step for steps in parts]
    moments[:1] = [steps.first_step for steps in parts[:1]]
    series = [[_phase_milliseconds(steps, phase) for steps in parts] for phase in PHASE_COLOURS]
    names = [PHASE_NAMES.get(phase, phase) for phase in PHASE_COLOURS]
    ax.stackplot(moments, series, labels=names, colors=list(PHASE_COLOURS.values()))
    ax.set_xlabel("step")


def _stack_ranks(ax: Any, run: Run) -> None:
    """A bar for each rank: what its seconds went to."""
    ranks = [[steps.ranks[rank] for steps in _parts(run)] for rank in range(len(run.ranks))]
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
    ax.set_xlabel("% of its time")


def _phase(rank: dict[str, Any], phase: str) -> float:
    if phase == "other":
        return max(rank["seconds"] - sum(rank[name] for name in PHASES), 0.0)
    return rank[phase]


def _phase_milliseconds(steps: Steps, phase: str) -> float:
    """Of one step, as the mean over ranks."""
    seconds = sum(_phase(rank, phase) for rank in steps.ranks) / len(steps.ranks)
    return 1000 * seconds / steps.told


# Scaling


def _draw_scaling(runs: Sequence[Run]) -> Figure | None:
    shown = [run for run in runs if throughput(run.measured)]
    if not any(len(run.ranks) > 1 for run in shown):
        return None
    figure = _new_figure(3.0)
    over_time, speeds = figure.subplots(1, 2, width_ratios=(3, 2))
    unit = _time_unit(shown)
    for index, run in enumerate(shown):
        points = [
            (steps.elapsed / unit[0], _scaled(efficiency([steps]), 100)) for steps in _parts(run)
        ]
        _plot_line(over_time, points, color=_colour(index), label=run.name)
        _prepare_time(over_time, run, unit)
    over_time.set_ylim(0, 105)
    over_time.set_title("efficiency, %")
    _name_lines(over_time, len(shown))
    _draw_speeds(speeds, shown)
    return figure


def _draw_speeds(ax: Any, runs: Sequence[Run]) -> None:
    """Bars of what all ranks did together, before what they would do without waiting."""
    positions = range(len(runs))
    alone = [throughput_alone(run.measured) or 0.0 for run in runs]
    reached = [throughput(run.measured) or 0.0 for run in runs]
    ax.barh(positions, alone, color=COLOURS[-1], alpha=0.45, height=0.75, label="without waiting")
    bars = ax.barh(positions, reached, color=COLOURS[0], height=0.45, label="together")
    ax.bar_label(bars, fmt="%.0f", padding=3)
    names = [f"{run.name}\n{len(run.ranks)} rank{'s'[: len(run.ranks) != 1]}" for run in runs]
    ax.set_yticks(positions, names)
    ax.set_ylim(len(runs) - 0.4, -0.9)
    ax.set_title("images/s of all ranks")
    ax.legend(loc="upper right", ncols=2)


# Temperature beside throughput


def _draw_temperature(runs: Sequence[Run]) -> Figure | None:
    if not (_any_rank(runs, "temperature_celsius") or _any_rank(runs, "clock_hertz")):
        return None
    figure = _new_figure(6.0)
    grid = figure.subplots(3, len(runs), sharex="col", sharey="row", squeeze=False)
    unit = _time_unit(runs)
    for column, run in enumerate(runs):
        heat, clock, speed = (row[column] for row in grid)
        _plot_ranks(heat, run, unit, lambda rank: rank["temperature_celsius"])
        _plot_ranks(clock, run, unit, lambda rank: _scaled(rank["clock_hertz"], 1e-9))
        points = [(steps.elapsed / unit[0], throughput([steps])) for steps in _parts(run)]
        _plot_line(speed, points, color=INK)
        _prepare_time(speed, run, unit)
        for ax in (heat, clock, speed):
            _shade_slowed(ax, run, unit)
        for ax in (heat, clock):
            ax.set_xlabel("")
        if len(runs) > 1:
            heat.set_title(run.name)
    for row, label in zip(
        grid, ("temperature, °C", "clock, GHz", "images/s, all ranks"), strict=True
    ):
        _begin_at_zero(row[0], label)
    return figure


def _shade_slowed(ax: Any, run: Run, unit: tuple[float, str]) -> None:
    """Red where a board was held back."""
    before = run.starts[0]["elapsed"]
    for steps in _parts(run):
        if any(slowed(rank) for rank in steps.ranks):
            ax.axvspan(before / unit[0], steps.elapsed / unit[0], color="#ee6677", alpha=0.2, lw=0)
        before = steps.elapsed


KINDS = (
    _Kind(
        "loss",
        "Loss and accuracy",
        "The loss of each step over all images of all ranks (thin), and its running mean; accuracy "
        "on the test images, where it was evaluated; the learning rate.",
        "No step has been recorded yet.",
        _draw_course,
    ),
    _Kind(
        "throughput",
        "Throughput of each rank",
        "Images a second, waiting included: all ranks take the same steps, so lines part only "
        "where ranks have different shares of a batch. A dotted line: the run was taken up again.",
        "No rank has told of a step yet.",
        _draw_throughput,
    ),
    _Kind(
        "time",
        "Where the time goes",
        "Above, a step in milliseconds, as the mean over ranks; below, each rank over the whole "
        "run. Waiting is what backward could not hide of the all-reduces. A rank that waits less "
        "than the others is the one they wait for.",
        "No rank has told of a step yet.",
        _draw_split,
    ),
    _Kind(
        "scaling",
        "Scaling",
        "Efficiency is the throughput of all ranks over what they would do if none waited for the "
        "others (grey). What ranks take from each other otherwise, such as cores of one host, it "
        "does not show: compare with a run of one rank.",
        "A run of one rank has nothing to scale; give one of more ranks beside it.",
        _draw_scaling,
    ),
    _Kind(
        "temperature",
        "Temperature and throttling",
        "Temperature and clock of the boards, and the throughput beneath. Red: a board was held "
        "back by heat or by its power supply, as its firmware says.",
        "The machines of these runs have no sensors of temperature or clock that can be read.",
        _draw_temperature,
    ),
    _Kind(
        "memory",
        "Memory",
        "What each rank's process has in memory. A line that rises to the end is a leak; one near "
        "a board's memory asks for a smaller batch.",
        "No rank has told of its memory.",
        _draw_memory,
    ),
)
