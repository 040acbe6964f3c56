"""How plots are drawn: style, axes over time, a line for each rank; as SVG and as PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from edgeddl.errors import ConfigError
from edgeddl.report.run import Run, Steps, thinned

try:
    from matplotlib import rc_context
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
# Autoscaling leaves 5 % of the data's range, which is nothing above lines that are flat.
HEADROOM = 1.05
# More than this many, and the names in a legend hide the plot.
MOST_NAMES = 8


def drawn_in_style() -> Any:
    """A context in which figures have the report's style."""
    return rc_context(STYLE)


def render_svg(figure: Figure) -> str:
    """For the inside of a page: without what only files of their own have, addresses above all."""
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
    """A column for each run, the same scale in all of them."""
    figure = new_figure(height)
    axes = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    if len(runs) > 1:
        for ax, run in zip(axes, runs, strict=True):
            ax.set_title(run.name)
    return figure, list(axes)


def colour_of(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def name_lines(ax: Any, count: int) -> None:
    if 1 < count <= MOST_NAMES:
        ax.legend(loc="best", ncols=2 if count > 4 else 1)


# Over time: each value a level that holds since the point before


def time_unit(runs: Iterable[Run]) -> tuple[float, str]:
    longest = max((run.steps[-1].elapsed for run in runs if run.steps), default=0.0)
    for seconds, name in ((3600.0, "hours"), (60.0, "minutes")):
        if longest >= 3 * seconds:
            return seconds, name
    return 1.0, "seconds"


def prepare_time(ax: Any, run: Run, unit: tuple[float, str]) -> None:
    """The axis, and a line where the run was taken up again."""
    ax.set_xlabel(f"time, {unit[1]}")
    for start in run.starts[1:]:
        ax.axvline(start["elapsed"] / unit[0], color=INK, linewidth=0.8, linestyle=":")


def plot_ranks(
    ax: Any, run: Run, unit: tuple[float, str], value: Callable[[dict[str, Any]], float | None]
) -> None:
    for rank, facts in enumerate(run.ranks):
        points = [  # with a gap where there was no such rank
            (steps.elapsed / unit[0], value(steps.ranks[rank]) if rank < len(steps.ranks) else None)
            for steps in shown_parts(run)
        ]
        plot_line(ax, points, color=colour_of(rank), label=f"{rank} {facts['host']}")
    name_lines(ax, len(run.ranks))
    prepare_time(ax, run, unit)


def begin_at_zero(first: Any, label: str) -> None:
    """The axis that all runs share; when all are drawn, because its upper end is fixed then."""
    first.set_ylabel(label)
    first.set_ylim(bottom=0, top=first.get_ylim()[1] * HEADROOM)


def plot_line(ax: Any, points: Sequence[tuple[float, float | None]], **style: Any) -> None:
    """With gaps where nothing is known; a single point, of a short run, would not be seen."""
    values = [math.nan if y is None else y for _, y in points]
    ax.plot([x for x, _ in points], values, marker="o" if len(points) == 1 else None, **style)


def shown_parts(run: Run) -> list[Steps]:
    return thinned(run.measured)


def any_rank(runs: Sequence[Run], name: str) -> bool:
    return any(
        rank[name] is not None for run in runs for steps in shown_parts(run) for rank in steps.ranks
    )
