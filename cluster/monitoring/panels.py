"""A concise description of dashboards: rows of panels, placed side by side until a row is full.

Colours start with the one for the lowest values. dashboard_json.py renders Grafana's files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Colours = Sequence[tuple[float | None, str]]
NEUTRAL: Colours = ((None, "blue"),)


@dataclass(frozen=True)
class Query:
    """A PromQL expression and the legend of its series; {{label}} stands for a label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel. `unit` is one of Grafana's units; `choices` maps a number to text and colour."""

    kind: str
    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    width: int
    height: int = 8
    lowest: float | None = None
    highest: float | None = None
    colours: Colours = NEUTRAL
    choices: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    drawing: Mapping[str, Any] = field(default_factory=dict)
    transformations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Row:
    """A row of panels; with `repeat`, one row for each value of this variable."""

    title: str
    panels: tuple[Panel, ...]
    repeat: str = ""


@dataclass(frozen=True)
class Variable:
    """A selector at the top of a dashboard, with the values of a metric's label."""

    name: str
    label: str
    description: str
    metric: str
    metric_label: str


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


RUN = Variable("run", "Run", "Name of the run's folder in runs/.", "edgeddl_planned_steps", "run")
NODE = Variable("node", "Node", "Name of the board.", "edgeddl_node_info", "host")


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 8,
    stacked: bool = False,
    **more: Any,
) -> Panel:
    """Values over time."""
    drawing: dict[str, Any] = {
        "lineWidth": 1 if stacked else 2,
        "fillOpacity": 60 if stacked else 0,  # filled areas of several boards hide each other
        "showPoints": "never",
    }
    if stacked:
        drawing["stacking"] = {"mode": "normal", "group": "A"}
    if len(more.get("colours", ())) > 1:
        drawing["thresholdsStyle"] = {"mode": "line"}
    options = {
        "legend": _legend_for(width),
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel(
        "timeseries", title, description, unit, queries, width,
        options=options, drawing=drawing, **more,
    )  # fmt: skip


def _legend_for(width: int) -> dict[str, Any]:
    """Put a table to the right: below a graph, Grafana 9.5 truncates it after two rows."""
    table = {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "mean"]}
    list_ = {"displayMode": "list", "placement": "bottom", "calcs": []}
    return {"showLegend": True, **(table if width >= 12 else list_)}


def number(
    title: str,
    description: str,
    unit: str,
    query: Query,
    width: int = 4,
    summary: str = "lastNotNull",
    **more: Any,
) -> Panel:
    """A large value over its history. `summary`: which value of the time range, such as "max"."""
    options = {
        "reduceOptions": {"calcs": [summary], "fields": "", "values": False},
        "graphMode": "area",
        "colorMode": "value",
        "textMode": "auto",
    }
    return Panel(
        "stat", title, description, unit, (query,), width, height=5, options=options, **more
    )


def bars(
    title: str, description: str, unit: str, query: Query, width: int = 8, **more: Any
) -> Panel:
    """A bar for each node."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "horizontal",
        "displayMode": "basic",
    }
    return Panel("bargauge", title, description, unit, (query,), width, options=options, **more)


def states(title: str, description: str, query: Query, width: int = 12, **more: Any) -> Panel:
    """A line for each series, coloured by its value."""
    no_legend = {"showLegend": False, "displayMode": "hidden", "placement": "bottom", "calcs": []}
    options = {"showValue": "never", "mergeValues": True, "legend": no_legend}
    return Panel(
        "state-timeline", title, description, "none", (query,), width, options=options, **more
    )


def table(title: str, description: str, query: Query, *labels: str, width: int = 12) -> Panel:
    """The labels of each series, with unit "string": "none" would render version 1.0 as 1."""
    columns = {"order": [], "pattern": f"^({'|'.join(labels)})$"}
    return Panel(
        "table", title, description, "string", (query,), width,
        transformations=({"id": "filterFieldsByName", "options": {"include": columns}},),
    )  # fmt: skip
