"""Style and helpers shared by the plots: time axes, one line per rank, SVG and PNG output."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from edgeddl.errors import ConfigError
from edgeddl.report.run import Run, Steps, subsample

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
except ImportError as error:
    raise ConfigError(
        f"plots need Matplotlib, which cannot be imported: {error}",
        hint="run pip install 'edgeddl[report]', or use --json to get the figures without plots",
    ) from None

# The page replaces this colour by its own text colour, for light or dark mode.
INK = "#010203"
# Paul Tol's "bright" palette: colour-blind safe, readable on light and dark backgrounds.
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "edgeddl",  # makes the output reproducible
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
# Autoscaling leaves 5 % of the data range, which is no margin above a flat line.
HEADROOM = 1.05
# A longer legend would hide the plot.
MAX_LEGEND_ENTRIES = 8


def drawn_in_style() -> Any:
    """A context in which figures use the style of the report."""
    return rc_context(STYLE)


def render_svg(figure: Figure) -> str:
    """SVG to embed in the page, without the XML header, metadata and namespace addresses."""
    stream = io.StringIO()
    unnamed = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=unnamed)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    for namespace in ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"):
        svg = svg.replace(f' xmlns="{namespace}"', "").replace(f' xmlns:xlink="{namespace}"', "")
    return svg


def render_png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def new_figure(height: float) -> Figure:
    return Figure(figsize=(10, height), layout="constrained")


def columns(runs: Sequence[Run], height: float = 2.8) -> tuple[Figure, list[Any]]:
    """One column per run, with a shared y axis."""
    figure = new_figure(height)
    axes = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    if len(runs) > 1:
        for ax, run in zip(axes, runs, strict=True):
            ax.set_title(run.name)
    return figure, list(axes)


def colour_of(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def name_lines(ax: Any, count: int) -> None:
    if 1 < count <= MAX_LEGEND_ENTRIES:
        ax.legend(loc="best", ncols=2 if count > 4 else 1)


# Plots over time: each value is a mean since the previous point


def time_unit(runs: Iterable[Run]) -> tuple[float, str]:
    longest = max((run.steps[-1].elapsed for run in runs if run.steps), default=0.0)
    for seconds, name in ((3600.0, "hours"), (60.0, "minutes")):
        if longest >= 3 * seconds:
            return seconds, name
    return 1.0, "seconds"


def prepare_time(ax: Any, run: Run, unit: tuple[float, str]) -> None:
    """Label the time axis and mark each resume by a dotted line."""
    ax.set_xlabel(f"time, {unit[1]}")
    for start in run.starts[1:]:
        ax.axvline(start["elapsed"] / unit[0], color=INK, linewidth=0.8, linestyle=":")


def plot_ranks(
    ax: Any, run: Run, unit: tuple[float, str], value: Callable[[dict[str, Any]], float | None]
) -> None:
    for rank, facts in enumerate(run.ranks):
        points = [  # None leaves a gap where the run had fewer ranks
            (steps.elapsed / unit[0], value(steps.ranks[rank]) if rank < len(steps.ranks) else None)
            for steps in shown_parts(run)
        ]
        plot_line(ax, points, color=colour_of(rank), label=f"{rank} {facts['host']}")
    name_lines(ax, len(run.ranks))
    prepare_time(ax, run, unit)


def begin_at_zero(first: Any, label: str) -> None:
    """Label the shared y axis and start it at 0. Call this last: it fixes the upper limit."""
    first.set_ylabel(label)
    first.set_ylim(bottom=0, top=first.get_ylim()[1] * HEADROOM)


def plot_line(ax: Any, points: Sequence[tuple[float, float | None]], **style: Any) -> None:
    """Plot with gaps for None, and with a marker if there is only one point."""
    values = [math.nan if y is None else y for _, y in points]
    ax.plot([x for x, _ in points], values, marker="o" if len(points) == 1 else None, **style)


def shown_parts(run: Run) -> list[Steps]:
    return subsample(run.measured)


def any_rank(runs: Sequence[Run], name: str) -> bool:
    return any(
        rank[name] is not None for run in runs for steps in shown_parts(run) for rank in steps.ranks
    )
