"""Panels and dashboards in few words, and Grafana's JSON made of them.

A dashboard is rows of panels; panels stand side by side until a row is full. Colours begin with
the one for the lowest values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Fixed, so that nobody is asked for a data source: grafana.py provisions it by this name.
DATASOURCE = {"type": "prometheus", "uid": "edgeddl-prometheus"}
GRID_COLUMNS = 24
# Of Grafana 10; later ones take it over by themselves.
SCHEMA_VERSION = 38

Colours = Sequence[tuple[float | None, str]]
NEUTRAL: Colours = ((None, "blue"),)


@dataclass(frozen=True)
class Query:
    """PromQL, and how its series are called: {{label}} stands for a label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """unit: one of Grafana's; choices: words to show in place of numbers."""

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
    choices: Mapping[int, tuple[str, str]] = field(default_factory=dict)  # text and colour
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
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 10,
        "showPoints": "never",
    }
    if stacked:
        drawing["stacking"] = {"mode": "normal", "group": "A"}
    if len(more.get("colours", ())) > 1:
        drawing["thresholdsStyle"] = {"mode": "line"}
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "mean"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel(
        "timeseries", title, description, unit, queries, width,
        options=options, drawing=drawing, **more,
    )  # fmt: skip


def number(
    title: str, description: str, unit: str, query: Query, width: int = 4, **more: Any
) -> Panel:
    """The present value, large, over its course."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
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
    options = {"showValue": "never", "mergeValues": True, "legend": {"showLegend": False}}
    return Panel(
        "state-timeline", title, description, "none", (query,), width, options=options, **more
    )


def table(title: str, description: str, query: Query, *labels: str, width: int = 12) -> Panel:
    """The labels of each series."""
    columns = {"order": [], "pattern": f"^({'|'.join(labels)})$"}
    return Panel(
        "table", title, description, "none", (query,), width,
        transformations=({"id": "filterFieldsByName", "options": {"include": columns}},),
    )  # fmt: skip


def render(dashboard: Dashboard) -> str:
    """The file that Grafana reads."""
    return json.dumps(to_json(dashboard), indent=1, ensure_ascii=False) + "\n"


def to_json(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"edgeddl-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["edgeddl"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # one cross-hair in all panels
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "edgeddl",
                "tags": ["edgeddl"],
                "asDropdown": False,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "annotations": {"list": []},
        "templating": {"list": [_variable(variable) for variable in dashboard.variables]},
        "panels": list(_place(dashboard.rows)),
    }


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.metric}, {variable.metric_label})"
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.label,
        "description": variable.description,
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,  # whenever the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _place(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Rows from top to bottom, panels in them from left to right."""
    number, y = 1, 0
    for row in rows:
        yield _row(row, number, y)
        number, y = number + 1, y + 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > GRID_COLUMNS:
                x, y, height = 0, y + height, 0
            yield _panel(panel, number, x, y)
            number, x, height = number + 1, x + panel.width, max(height, panel.height)
        y += height


def _row(row: Row, number: int, y: int) -> dict[str, Any]:
    repeat = {"repeat": row.repeat} if row.repeat else {}
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "gridPos": {"x": 0, "y": y, "w": GRID_COLUMNS, "h": 1},
        "collapsed": False,
        "panels": [],
        **repeat,
    }


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    at_once = panel.kind == "table"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "datasource": DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "instant": at_once,
                "range": not at_once,
                "format": "table" if at_once else "time_series",
            }
            for position, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": dict(panel.options),
        "transformations": [dict(step) for step in panel.transformations],
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps = [{"value": value, "color": colour} for value, colour in panel.colours]
    by_threshold = panel.kind != "timeseries"
    limits = {"min": panel.lowest, "max": panel.highest}
    return {
        "unit": panel.unit,
        **{name: value for name, value in limits.items() if value is not None},
        "color": {"mode": "thresholds" if by_threshold else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": _mappings(panel.choices),
        "custom": dict(panel.drawing),
    }


def _mappings(choices: Mapping[int, tuple[str, str]]) -> list[dict[str, Any]]:
    if not choices:
        return []
    words = {
        str(value): {"text": text, "color": colour, "index": index}
        for index, (value, (text, colour)) in enumerate(choices.items())
    }
    return [{"type": "value", "options": words}]
