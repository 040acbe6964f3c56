"""Dashboards in few words: rows of panels, which stand side by side until a row is full.

Colours begin with the one for the lowest values. dashboard_json.py makes Grafana's files of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Colours = Sequence[tuple[float | None, str]]
NEUTRAL: Colours = ((None, "blue"),)


@dataclass(frozen=True)
class Query:
    """PromQL, and how its series are called: {{label}} stands for a label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """unit: one of Grafana's; choices: text and colour to show for a number."""

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
    """repeat: the variable for each of whose values the row is there."""

    title: str
    panels: tuple[Panel, ...]
    repeat: str = ""


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard, of the values that a label of a metric has."""

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


RUN = Variable("run", "Run", "The folder of the run in runs/.", "edgeddl_planned_steps", "run")
NODE = Variable("node", "Node", "The name of the board.", "edgeddl_node_info", "host")


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
        "fillOpacity": 60 if stacked else 0,  # areas of several boards would hide each other
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
    """Room for several boards: below a graph, Grafana 9.5 cuts a table off after two rows."""
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
    """One value, large, over its course. summary: which one, "max" for that of the time range."""
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
    """The labels of each series, as text: Grafana's unit "none" turns version 1.0 into 1."""
    columns = {"order": [], "pattern": f"^({'|'.join(labels)})$"}
    return Panel(
        "table", title, description, "string", (query,), width,
        transformations=({"id": "filterFieldsByName", "options": {"include": columns}},),
    )  # fmt: skip
