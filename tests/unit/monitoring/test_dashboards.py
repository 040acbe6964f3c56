"""Dashboards, targets and rules, without a server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.inventory_file import read_inventory
from cluster.monitoring import dashboard_json, grafana, local, panels, targets, views
from cluster.monitoring.__main__ import main
from edgeddl.metrics import names
from tests.support import REPOSITORY
from tests.unit.monitoring.dashboard_queries import (
    DASHBOARDS,
    RULES,
    metrics_in,
    of_panels,
    of_rules,
    read_panels,
)

SAMPLE = REPOSITORY / "cluster/inventory/boards.example.yml"
# metrics of Prometheus itself and of Debian's prometheus-node-exporter
FOREIGN = {
    "up",
    "ALERTS",
    "node_filesystem_avail_bytes",
    "node_filesystem_size_bytes",
    "node_network_transmit_bytes_total",
}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt install prometheus"
)


def known_names() -> set[str]:
    known = set(FOREIGN)
    for metric in names.ALL:
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        known |= {metric.name + part for part in parts}
    return known | {rule.where for rule in of_rules() if ":" in rule.where}


@pytest.mark.parametrize("dashboard", views.ALL, ids=lambda dashboard: dashboard.name)
def test_committed_dashboards_are_up_to_date(dashboard: panels.Dashboard) -> None:
    committed = (grafana.DASHBOARDS / f"{dashboard.name}.json").read_text()
    assert committed == dashboard_json.render(dashboard), "python -m cluster.monitoring dashboards"


def test_there_is_no_other_dashboard() -> None:
    assert {path.stem for path in DASHBOARDS} == {dashboard.name for dashboard in views.ALL}


@pytest.mark.parametrize("asked", of_panels() + of_rules(), ids=lambda asked: asked.where)
def test_queries_use_existing_metrics(asked: Any) -> None:
    found = metrics_in(asked.expr)
    assert found and found <= known_names()


def test_queries_use_existing_labels() -> None:
    labels = {label for metric in names.ALL for label in metric.labels}
    for asked in of_panels():
        for target in asked.panel["targets"]:
            words = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert words <= labels | {"mountpoint"}, asked.where


@pytest.mark.parametrize(("where", "panel"), list(read_panels()), ids=lambda value: str(value)[:40])
def test_every_panel_has_a_description(where: str, panel: dict[str, Any]) -> None:
    if panel["type"] == "row":
        return
    assert len(panel["description"]) > 25 and panel["description"].endswith("."), where
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    if defaults["unit"] == "percentunit":
        assert (defaults["min"], defaults["max"]) == (0, 1)
    steps = [step["value"] for step in defaults["thresholds"]["steps"]]
    assert steps[0] is None and steps[1:] == sorted(steps[1:])


def test_the_guide_explains_every_panel() -> None:
    page = (REPOSITORY / "docs/reference/dashboards.md").read_text()
    titles = {panel["title"] for _, panel in read_panels() if panel["type"] != "row"}
    assert [title for title in sorted(titles) if f"*{title}*" not in page] == []


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_load_without_questions(path: Path) -> None:
    text = path.read_text()
    dashboard = json.loads(text)
    assert "__inputs" not in text and "${DS_" not in text and "id" not in dashboard
    places = dashboard["panels"] + dashboard["templating"]["list"]
    targets_of = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    for place in [*places, *targets_of]:
        if place.get("type") != "row":
            assert place["datasource"] == dashboard_json.DATASOURCE
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    for name in ("run", "node"):
        assert (f"${name}" in json.dumps(dashboard["panels"])) == (name in variables)


@pytest.mark.parametrize(("where", "panel"), list(read_panels()), ids=lambda value: str(value)[:40])
def test_threshold_steps_have_the_colours_of_choices(where: str, panel: dict[str, Any]) -> None:
    """Grafana ignores the colours of mappings in state timelines."""
    defaults = panel.get("fieldConfig", {}).get("defaults", {"mappings": []})
    for value, choice in [one for map_ in defaults["mappings"] for one in map_["options"].items()]:
        steps = defaults["thresholds"]["steps"]
        reached = [step for step in steps if step["value"] is None or step["value"] <= int(value)]
        assert reached[-1]["color"] == choice["color"], where


def test_short_throttling_is_shown() -> None:
    """A point shows only its last sample, and throttling may happen between two points."""
    shown = [asked for asked in of_panels() if 'edgeddl_node_throttling{when="now"' in asked.expr]
    assert len(shown) == 2
    for asked in shown:
        assert re.search(r"max_over_time\(edgeddl_node_throttling\{[^}]*\}\[20s\]\)", asked.expr)
        if asked.panel["type"] == "stat":
            assert asked.panel["options"]["reduceOptions"]["calcs"] == ["max"]


@pytest.mark.parametrize(("where", "panel"), list(read_panels()), ids=lambda value: str(value)[:40])
def test_several_boards_can_be_distinguished(where: str, panel: dict[str, Any]) -> None:
    """No overlapping areas, and no table below a graph, which shows only two rows."""
    if panel["type"] == "timeseries":
        drawing = panel["fieldConfig"]["defaults"]["custom"]
        assert ("stacking" in drawing) == (drawing["fillOpacity"] > 0), where
        legend = panel["options"]["legend"]
        form = ("table", "right") if panel["gridPos"]["w"] >= 12 else ("list", "bottom")
        assert legend["showLegend"] and (legend["displayMode"], legend["placement"]) == form, where


def test_tables_show_labels_as_they_are() -> None:
    """Grafana's unit "none" would render the text 1.0 as the number 1."""
    tables = [panel for _, panel in read_panels() if panel["type"] == "table"]
    assert {panel["fieldConfig"]["defaults"]["unit"] for panel in tables} == {"string"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_fill_the_page_without_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(path.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and all(x < dashboard_json.GRID_COLUMNS for x, _ in cells)
        taken |= cells


def test_targets_of_an_inventory() -> None:
    groups = targets.of_cluster(read_inventory(SAMPLE))
    assert len(groups) == 4 * 3
    assert groups[0] == {
        "targets": [f"192.168.1.101:{port}" for port in (9836, 9837, 9838, 9839)],
        "labels": {"job": "rank", "host": "pi-01"},
    }
    assert groups[1]["targets"] == ["192.168.1.101:9835"]
    assert groups[-1] == {
        "targets": ["192.168.1.104:9100"],
        "labels": {"job": "machine", "host": "pi-04"},
    }


def test_targets_with_ipv6_addresses(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(
        "cluster:\n  hosts:\n    pi-01:\n      ansible_host: 'fd00::1'\n"
        "  vars:\n    cluster_network: 'fd00::/64'\n    cluster_head: pi-01\n    ansible_user: pi\n"
    )
    groups = targets.of_cluster(read_inventory(inventory))
    assert groups[1]["targets"] == ["[fd00::1]:9835"]


def test_targets_are_printed_for_another_prometheus(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["targets", "--inventory", str(SAMPLE)]) == 0
    assert json.loads(capsys.readouterr().out) == targets.of_cluster(read_inventory(SAMPLE))


def test_a_missing_inventory_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["targets", "--inventory", str(tmp_path / "absent.yml")]) == 2
    error = capsys.readouterr().err
    assert "absent.yml" in error and "Traceback" not in error


def test_panels_use_the_provisioned_data_source() -> None:
    (source,) = grafana.datasource("http://localhost:9090")["datasources"]
    assert source["uid"] == dashboard_json.DATASOURCE["uid"]
    config = yaml.safe_load((local.HERE / "prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]


def test_every_alert_has_a_summary_and_is_in_the_guide() -> None:
    page = (REPOSITORY / "docs/reference/dashboards.md").read_text()
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(alerts) == 8
    for alert in alerts:
        assert alert["annotations"]["summary"].endswith(".")
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert f"`{alert['alert']}`" in page


@needs_promtool
def test_promtool_accepts_configuration_and_rules(tmp_path: Path) -> None:
    for name in ("prometheus.yml", "rules.yml"):
        shutil.copyfile(local.HERE / name, tmp_path / name)
    (tmp_path / "targets.json").write_text(targets.render(targets.of_this_machine()))
    promtool("check", "config", str(tmp_path / "prometheus.yml"))
    promtool("check", "rules", "--lint-fatal", str(tmp_path / "rules.yml"))


@needs_promtool
def test_recording_rules_and_alerts(tmp_path: Path) -> None:
    shutil.copyfile(RULES, tmp_path / "rules.yml")
    shutil.copyfile(Path(__file__).with_name("rules.test.yml"), tmp_path / "rules.test.yml")
    promtool("test", "rules", str(tmp_path / "rules.test.yml"))


def promtool(*words: str) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
