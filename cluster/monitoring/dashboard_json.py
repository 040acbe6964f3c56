"""Renders dashboards as Grafana's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.monitoring.panels import Colours, Dashboard, Panel, Row, Variable

# Fixed, so that Grafana does not ask for a data source: grafana.py provisions it by this uid.
DATASOURCE = {"type": "prometheus", "uid": "edgeddl-prometheus"}
GRID_COLUMNS = 24
# of Grafana 10; later versions migrate it
SCHEMA_VERSION = 38


def render(dashboard: Dashboard) -> str:
    """Return the content of a dashboard file."""
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
                "tooltip": "",
                "icon": "external link",
                "tags": ["edgeddl"],
                "asDropdown": False,
                "targetBlank": False,
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
    """Place rows from top to bottom, and the panels of a row from left to right."""
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
    instant = panel.kind == "table"
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
                "instant": instant,
                "range": not instant,
                "format": "table" if instant else "time_series",
            }
            for position, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": dict(panel.options),
        "transformations": [dict(step) for step in panel.transformations],
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps = [{"value": value, "color": colour} for value, colour in _colours(panel)]
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


def _colours(panel: Panel) -> Colours:
    """Use the colours of choices, if any: state timelines ignore the colours of mappings."""
    if not panel.choices:
        return panel.colours
    lowest = min(panel.choices)
    return [
        (None if value == lowest else value, colour)
        for value, (_, colour) in sorted(panel.choices.items())
    ]


def _mappings(choices: Mapping[int, tuple[str, str]]) -> list[dict[str, Any]]:
    if not choices:
        return []
    options = {
        str(value): {"text": text, "color": colour, "index": index}
        for index, (value, (text, colour)) in enumerate(choices.items())
    }
    return [{"type": "value", "options": options}]
