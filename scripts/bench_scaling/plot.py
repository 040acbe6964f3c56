"""Plots of the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_scaling.plan import CHAINERMN, EDGEDDL, TORCH
from bench_scaling.rows import Row
from edgeddl.table import counted

# A system's series have shades of its colour, from dark to light, and different markers.
COLOURS = {
    EDGEDDL: ("#08306b", "#1f77b4", "#17a2b8", "#6a51a3", "#41ab5d", "#c51b8a"),
    TORCH: ("#d95f02", "#fdae6b"),
    CHAINERMN: ("#525252", "#a6a6a6"),
}
MARKERS = ("o", "s", "^", "D", "v", "P")
APART = "--"  # nodes that train independently: an upper bound
HEIGHT, WIDTH = 3.4, 5.4  # inches, of a panel with its labels
LABEL_DISTANCE = 0.065  # between labels of two lines, as a fraction of a panel's height


def plot_stem(rows: Sequence[Row], path: Path) -> None:
    """Plot throughput, efficiency and the parts of a step, in a column for each batch size."""
    from matplotlib.figure import Figure

    batches = sorted({row.case.batch for row in rows})
    figure = Figure(figsize=(WIDTH * len(batches) + 1, HEIGHT * 3), layout="constrained")
    panels = figure.subplots(3, len(batches), squeeze=False)
    for column, batch in enumerate(batches):
        of_batch = [row for row in rows if row.case.batch == batch]
        speed, efficiency, split = (panels[line][column] for line in range(3))
        _draw_speed(speed, of_batch)
        _draw_efficiency(efficiency, of_batch)
        _draw_split(split, of_batch)
        speed.set_title(f"batch {batch} per node")
    panels[0][0].set_ylabel("images per second")
    panels[1][0].set_ylabel("efficiency")
    figure.suptitle(f"Training throughput of ResNet-18, {rows[0].case.stem} stem")
    figure.savefig(path, dpi=130)


def _draw_speed(panel: Any, rows: Sequence[Row]) -> None:
    for label, of_system in _by_label(rows).items():
        nodes = [row.case.nodes for row in of_system]
        panel.plot(nodes, [row.images_per_second for row in of_system], **_style(label, rows))
    _finish(panel, rows)


def _draw_efficiency(panel: Any, rows: Sequence[Row]) -> None:
    for label, of_system in _by_label(rows).items():
        known = [row for row in of_system if row.efficiency is not None]
        nodes = [row.case.nodes for row in known]
        panel.plot(nodes, [100 * (row.efficiency or 0) for row in known], **_style(label, rows))
    _finish(panel, rows)
    panel.axhline(100, color="black", linewidth=0.8)
    panel.yaxis.set_major_formatter("{x:.0f} %")


def _draw_split(panel: Any, rows: Sequence[Row]) -> None:
    """Draw the parts of a step on the most nodes, and the transfer time at line rate."""
    most = max(row.case.nodes for row in rows)
    shown = [row for row in rows if row.case.nodes == most]
    labels = [row.case.label for row in shown]
    computing = [row.compute_seconds for row in shown]
    colours = [_style(row.case.label, rows)["color"] for row in shown]
    panel.barh(labels, computing, color=colours)
    panel.barh(
        labels, [row.wait_seconds for row in shown], left=computing, color=colours, alpha=0.35
    )
    for place, row in enumerate(shown):
        if row.wire_seconds:
            panel.plot([row.wire_seconds] * 2, [place - 0.4, place + 0.4], color="black")
    panel.invert_yaxis()
    panel.grid(axis="x", alpha=0.3)
    panel.set_xlabel(f"seconds per step on {counted(most, 'node')}")
    panel.set_title("compute, waiting (pale), transfer at line rate (|)", fontsize=8)


def _by_label(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group rows by label, with ascending numbers of nodes, starting with the single-node row."""
    of_case = {row.case: row for row in rows}
    labelled: dict[str, list[Row]] = {}
    for row in rows:
        alone = of_case.get(row.case.alone)
        of_label = labelled.setdefault(row.case.label, [alone] if alone else [])
        if row is not alone:
            of_label.append(row)
    return labelled


def _style(label: str, rows: Sequence[Row]) -> dict[str, Any]:
    system = label.split()[0]
    kin = [name for name in _by_label(rows) if name.split()[0] == system]
    place, colours = kin.index(label), COLOURS[system]
    return {
        "label": label,
        "color": colours[place % len(colours)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": APART if label.endswith(" apart") else "-",
    }


def _finish(panel: Any, rows: Sequence[Row]) -> None:
    panel.set_xticks(sorted({row.case.nodes for row in rows}))
    panel.set_xlabel("nodes")
    panel.grid(alpha=0.3)
    panel.set_ylim(bottom=0)
    _label_lines(panel)


def _label_lines(panel: Any) -> None:
    """Write each line's name at its right end, in its colour, without overlaps."""
    lines = sorted(
        (line for line in panel.lines if len(line.get_ydata())),
        key=lambda line: line.get_ydata()[-1],
    )
    top = panel.get_ylim()[1]
    heights = spread([line.get_ydata()[-1] / top for line in lines], LABEL_DISTANCE)
    for line, height in zip(lines, heights, strict=True):
        panel.annotate(
            line.get_label(),
            xy=(line.get_xdata()[-1], line.get_ydata()[-1]),
            xytext=(1.04, height),
            textcoords="axes fraction",
            color=line.get_color(),
            fontsize=8,
            verticalalignment="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.6},
        )


def spread(heights: Sequence[float], distance: float) -> list[float]:
    """Move ascending heights from 0 to 1 as little as possible, to keep this distance."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + distance if placed else 0.0))
    ceiling = 1.0
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - distance
    return placed
