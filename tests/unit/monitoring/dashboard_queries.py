"""Extracts the queries of dashboards and rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from cluster.monitoring import grafana, local

DASHBOARDS = sorted(grafana.DASHBOARDS.glob("*.json"))
RULES = local.HERE / "rules.yml"
# values that Grafana substitutes for its variables
VARIABLES = {"$run": ".*", "$node": ".*", "$__rate_interval": "20s"}


@dataclass(frozen=True)
class Asked:
    where: str
    expr: str
    panel: dict[str, Any]


def read_panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            yield f"{path.stem}: {panel['title']}", panel


def of_panels() -> list[Asked]:
    return [
        Asked(f"{where} {target['refId']}", _filled(target["expr"]), panel)
        for where, panel in read_panels()
        for target in panel.get("targets", ())
    ]


def of_rules() -> list[Asked]:
    return [
        Asked(rule.get("record") or rule["alert"], rule["expr"], {})
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
    ]


def metrics_in(expr: str) -> set[str]:
    """Return the metrics and recording rules used in PromQL."""
    return set(re.findall(r"\b(?:edgeddl_|node_|up\b|ALERTS\b|[a-z_]+:edgeddl)[\w:]*", _bare(expr)))


def _bare(expr: str) -> str:
    """Remove labels and their values, which may look like metric names."""
    return re.sub(r"\{[^}]*\}|\b(by|on|ignoring|group_left) \([^)]*\)", "", expr)


def _filled(expr: str) -> str:
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    return expr
