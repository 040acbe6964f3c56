"""Checks dashboards with the TypeScript types of Grafana's frontend, npm's @grafana/schema.

Grafana silently ignores options that are misspelt or misplaced.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.monitoring import grafana

TYPES = Path(__file__).with_name("grafana_schema")
DASHBOARDS = {path.stem: path.read_text() for path in sorted(grafana.DASHBOARDS.glob("*.json"))}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with the TypeScript compiler and Grafana's types, pinned by the lock file."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed: sudo ./scripts/test-tools")
    folder = shutil.copytree(TYPES, tmp_path_factory.mktemp("grafana") / "schema")
    words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    network = ["--fetch-retries=1", "--fetch-timeout=20000"]
    done = subprocess.run(
        [npm, *words, *network], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert "EINTEGRITY" not in done.stderr, done.stderr
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "npm error" in line.lower()]
        pytest.skip(f"npm cannot download @grafana/schema: {'; '.join(errors[:2])}")
    return folder


def complaints(compiler: Path, **dashboards: str) -> str:
    """Return the compiler's errors for these dashboards as literals of Grafana's types."""
    for name, text in dashboards.items():
        source = "import type { DashboardJson } from './literal';\n"
        source += f"export const dashboard: DashboardJson = {text};\n"
        (compiler / f"{name}.ts").write_text(source)
    options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"]
    modules = ["--module", "nodenext", "--moduleResolution", "nodenext"]
    files = [f"{name}.ts" for name in dashboards]
    done = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc", *options, *modules, *files],
        cwd=compiler, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_dashboards_match_grafanas_types(compiler: Path) -> None:
    assert complaints(compiler, **DASHBOARDS) == ""


def rename_legend(panel: dict[str, Any]) -> None:
    panel["options"]["legends"] = panel["options"].pop("legend")


def misspell_mode(panel: dict[str, Any]) -> None:
    panel["options"]["legend"]["displayMode"] = "tables"


def misspell_drawing(panel: dict[str, Any]) -> None:
    panel["fieldConfig"]["defaults"]["custom"]["fillOpacitiy"] = 10


def forget_placement(panel: dict[str, Any]) -> None:
    del panel["options"]["legend"]["placement"]


MISTAKES: dict[Callable[[dict[str, Any]], None], str] = {
    rename_legend: "legends",
    misspell_mode: "tables",
    misspell_drawing: "fillOpacitiy",
    forget_placement: "placement",
}


def test_mistakes_are_found(compiler: Path) -> None:
    """The check above must be able to fail."""
    wrong = {}
    for mistake in MISTAKES:
        dashboard = json.loads(DASHBOARDS["training"])
        graphs = [panel for panel in dashboard["panels"] if panel["type"] == "timeseries"]
        mistake(graphs[0])
        dashboard["panels"] = graphs[:1]
        wrong[mistake.__name__] = json.dumps(dashboard)
    found = complaints(compiler, **wrong)
    errors = re.findall(r"^(\w+)\.ts(.*\n(?: .*\n)*)", found, re.MULTILINE)
    assert len(errors) == len(MISTAKES)
    for mistake, word in MISTAKES.items():
        assert word in dict(errors)[mistake.__name__]
