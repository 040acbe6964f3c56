"""The results as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_scaling.plan import CHAINERMN, EDGEDDL, TORCH
from bench_scaling.rows import Row
from edgeddl.table import counted

COLOURS = {EDGEDDL: "C0", TORCH: "C1", CHAINERMN: "C7"}
# edgeddl's kinds of compression and balance share its colour
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^")  # the next one when styles begin again
HEIGHT, WIDTH = 3.2, 4.2  # inches, of a panel


def plot_stem(rows: Sequence[Row], path: Path) -> None:
    """A column for each batch size: throughput, efficiency, and where a step's time goes."""
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
        speed.set_title(f"batch {batch} a node")
    panels[0][0].set_ylabel("images a second")
    panels[1][0].set_ylabel("efficiency")
    fullest = max(panels[0], key=lambda panel: len(panel.lines))  # has all systems
    room = min(2 * len(batches), 4)  # for entries side by side
    figure.legend(
        *fullest.get_legend_handles_labels(), loc="outside lower center", ncols=room, fontsize=9
    )
    figure.suptitle(f"Training ResNet-18, {rows[0].case.stem} stem")
    figure.savefig(path, dpi=130)


def _draw_speed(panel: Any, rows: Sequence[Row]) -> None:
    for label, of_system in _by_label(rows).items():
        nodes = [row.case.nodes for row in of_system]
        panel.plot(nodes, [row.images_per_second for row in of_system], **_style(label, rows))
    _finish(panel, rows)
    panel.set_ylim(bottom=0)


def _draw_efficiency(panel: Any, rows: Sequence[Row]) -> None:
    for label, of_system in _by_label(rows).items():
        known = [row for row in of_system if row.efficiency is not None]
        nodes = [row.case.nodes for row in known]
        panel.plot(nodes, [100 * (row.efficiency or 0) for row in known], **_style(label, rows))
    panel.axhline(100, color="black", linewidth=0.8)
    panel.yaxis.set_major_formatter("{x:.0f} %")
    _finish(panel, rows)
    panel.set_ylim(bottom=0)


def _draw_split(panel: Any, rows: Sequence[Row]) -> None:
    """Steps on the most nodes, and what the wire alone would take."""
    most = max(row.case.nodes for row in rows)
    shown = [row for row in rows if row.case.nodes == most]
    labels = [row.case.label for row in shown]
    computing = [row.compute_seconds for row in shown]
    colours = [COLOURS[row.case.system] for row in shown]
    panel.barh(labels, computing, color=colours)
    panel.barh(
        labels, [row.wait_seconds for row in shown], left=computing, color=colours, alpha=0.35
    )
    for place, row in enumerate(shown):
        if row.wire_seconds:
            panel.plot([row.wire_seconds] * 2, [place - 0.4, place + 0.4], color="black")
    panel.invert_yaxis()
    panel.grid(axis="x", alpha=0.3)
    panel.set_xlabel(f"seconds of a step on {counted(most, 'node')}")
    panel.set_title("computing, waiting (pale), wire alone (|)", fontsize=8)


def _by_label(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """By the system's label, its rows with ascending numbers of nodes, from a single one on."""
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
    turn, place = divmod(kin.index(label), len(STYLES))
    look = {"linestyle": STYLES[place], "marker": MARKERS[turn % len(MARKERS)]}
    return {"label": label, "color": COLOURS[system], **look}


def _finish(panel: Any, rows: Sequence[Row]) -> None:
    panel.set_xticks(sorted({row.case.nodes for row in rows}))
    panel.set_xlabel("nodes")
    panel.grid(alpha=0.3)
